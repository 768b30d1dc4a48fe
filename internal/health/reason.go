package health

import (
	"errors"
	"strings"

	"berth/internal/setting"
)

// Reason states to operators why a dependency is unavailable, and what to change. /readyz shows it to any caller, so it has no
// addresses, names of users or secrets; the error that has it is only logged.
type Reason struct {
	Code    string `json:"code" doc:"What is wrong, for programs" example:"read_only"`
	Setting string `json:"setting,omitempty" doc:"The setting of berth or of the server that is concerned" example:"BERTH_REDIS_ADDR"`
	Text    string `json:"text" doc:"What is wrong and what to change" example:"a read-only replica: set the address of the master"`
	// Risk means that the dependency works, and that data may be lost.
	Risk bool `json:"-"`
	// Lasting means that to wait does not help, because settings or rights are wrong.
	Lasting bool `json:"-"`
}

// Problem is an error with the Reason why a dependency cannot be used, or only with a risk. Doctor, logs, /readyz and the console have their
// words from it.
type Problem struct {
	Reason

	// Said has the words of the server, or of the connection to it. Unlike the Reason, it may have addresses.
	Said string
	// Advice states what to change: the text, after the setting unless the text is enough.
	Advice string
	Err    error
}

// NewProblem returns a problem whose advice begins with the setting.
func NewProblem(r Reason, said string, err error) *Problem {
	return &Problem{Reason: r, Said: said, Advice: strings.TrimPrefix(r.Setting+": "+r.Text, ": "), Err: err}
}

// Error returns the words of the server, then the advice unless they begin with it.
func (p *Problem) Error() string {
	if strings.HasPrefix(p.Said, p.Advice) {
		return p.Said
	}
	return p.Said + ": " + p.Advice
}

func (p *Problem) Unwrap() error { return p.Err }

// As makes a lasting problem a setting.WrongError.
func (p *Problem) As(target any) bool {
	wrong, ok := target.(**setting.WrongError)
	if ok && p.Lasting {
		*wrong = &setting.WrongError{Err: p}
	}
	return ok && p.Lasting
}

// ReasonOf returns the reason of an error that has a Problem.
func ReasonOf(err error) (Reason, bool) {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		return Reason{}, false
	}
	return p.Reason, true
}
