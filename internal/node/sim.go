package node

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"berth"
	"berth/internal/pause"
)

// SimMark ends every text of the simulated node, which marks it as simulated.
const SimMark = " [sim]"

// Sim is a simulated driver. It translates word by word with a small dictionary of English, Spanish, Chinese, French and
// German, and keeps unknown words.
type Sim struct {
	node  string
	opts  SimOptions
	calls atomic.Int64
}

// SimOptions make a simulated node slow or faulty.
type SimOptions struct {
	// Delay is how long a job takes.
	Delay time.Duration
	// FailEvery fails every n-th job; 0 for none.
	FailEvery int
}

// NewSim returns the driver of the node with that id.
func NewSim(nodeID string, o SimOptions) *Sim { return &Sim{node: nodeID, opts: o} }

// Translate looks up every word.
func (s *Sim) Translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
	if err := s.work(ctx); err != nil {
		return berth.JobOutput{}, err
	}
	return berth.JobOutput{Text: lookUp(in.Text, in.SrcLang, in.TgtLang) + SimMark}, nil
}

// Execute returns the executor's name, its input and the node's id.
func (s *Sim) Execute(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
	if err := s.work(ctx); err != nil {
		return berth.ExecuteOutput{}, err
	}
	out, err := json.Marshal(struct {
		Executor string          `json:"executor"`
		Input    json.RawMessage `json:"input,omitempty"`
		Node     string          `json:"node"`
	}{in.Executor, in.Input, s.node})
	if err != nil {
		return berth.ExecuteOutput{}, berth.Errorf(berth.CodeInvalid, "the input is not JSON").With(err)
	}
	return berth.ExecuteOutput{Output: out}, nil
}

func (s *Sim) work(ctx context.Context) error {
	n := s.calls.Add(1)
	if s.opts.Delay > 0 && !pause.For(ctx, s.opts.Delay) {
		return fmt.Errorf("simulated work: %w", ctx.Err())
	}
	if s.opts.FailEvery > 0 && n%int64(s.opts.FailEvery) == 0 {
		return berth.Errorf(berth.CodeNodeFailed, "simulated fault of job %d", n)
	}
	return nil
}

//go:embed words.tsv
var wordTable string

// dictionaries returns the dictionaries by language pair, such as "en-es".
var dictionaries = sync.OnceValue(func() map[string]dictionary {
	rows := strings.Split(strings.TrimSpace(wordTable), "\n")
	languages := strings.Split(rows[0], "\t")
	out := map[string]dictionary{}
	for _, row := range rows[1:] {
		words := strings.Split(row, "\t")
		for i, from := range words {
			for k, to := range words {
				if i != k && from != none {
					out[languages[i]+"-"+languages[k]] = out[languages[i]+"-"+languages[k]].with(from, to)
				}
			}
		}
	}
	return out
})

// none marks a missing word in the table.
const none = "-"

// dictionary maps lower-case words to those of another language. longest is the length of its longest entry in runes.
type dictionary struct {
	words   map[string]string
	longest int
}

// with adds a word; the first meaning wins.
func (d dictionary) with(from, to string) dictionary {
	if d.words == nil {
		d.words = map[string]string{}
	}
	from = strings.ToLower(from)
	if _, known := d.words[from]; !known {
		d.words[from] = to
	}
	d.longest = max(d.longest, utf8.RuneCountInString(from))
	return d
}

// match returns the longest entry that text begins with, and its length in runes. In scripts that separate words, an
// entry ends at the end of a word.
func (d dictionary) match(text []rune) (to string, taken int) {
	for n := min(d.longest, len(text)); n > 0; n-- {
		if n < len(text) && inWord(text[n-1]) && inWord(text[n]) {
			continue
		}
		if to, ok := d.words[strings.ToLower(string(text[:n]))]; ok {
			return to, n
		}
	}
	return "", 0
}

// inWord reports whether r is a letter of a script that separates words.
func inWord(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '\'') && !unicode.Is(unicode.Han, r)
}

// lookUp translates word by word, with spaces between words only in scripts that separate them.
func lookUp(text, src, tgt string) string {
	d := dictionaries()[src+"-"+tgt]
	in := []rune(text)
	var out strings.Builder
	var last rune
	write := func(s string) {
		first, _ := utf8.DecodeRuneInString(s)
		if inWord(last) && inWord(first) {
			out.WriteByte(' ')
		}
		out.WriteString(s)
		last, _ = utf8.DecodeLastRuneInString(s)
	}
	for i := 0; i < len(in); {
		to, n := d.match(in[i:])
		switch {
		case n == 0: // an unknown word, a space or a sign
			n = 1
			for inWord(in[i]) && i+n < len(in) && inWord(in[i+n]) {
				n++
			}
			if tgt != "zh" || in[i] != ' ' {
				write(string(in[i : i+n]))
			}
		case to == none:
			if i+n < len(in) && in[i+n] == ' ' {
				n++
			}
		case unicode.IsUpper(in[i]):
			first, size := utf8.DecodeRuneInString(to)
			write(string(unicode.ToUpper(first)) + to[size:])
		default:
			write(to)
		}
		i += n
	}
	return strings.TrimRight(out.String(), " ")
}
