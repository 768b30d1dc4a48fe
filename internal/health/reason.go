package health

import "errors"

// Reason states to operators why a dependency is unavailable, and what to change. /readyz shows it to any caller, so it has no
// addresses, names of users or secrets; the error that has it is only logged.
type Reason struct {
	Code    string `json:"code" doc:"What is wrong, for programs" example:"read_only"`
	Setting string `json:"setting,omitempty" doc:"The setting of berth or of the server that is concerned" example:"BERTH_REDIS_ADDR"`
	Text    string `json:"text" doc:"What is wrong and what to change" example:"a read-only replica: set the address of the master"`
	// Risk means that the dependency works, and that data may be lost.
	Risk bool `json:"-"`
}

// ReasonOf returns the reason of an error that has one, which is an error with the method Reason.
func ReasonOf(err error) (Reason, bool) {
	var reasoned interface{ Reason() Reason }
	if !errors.As(err, &reasoned) {
		return Reason{}, false
	}
	return reasoned.Reason(), true
}
