package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// line is one line of the scoreboard.
type line struct {
	name, berth, portkey string
	// must is the condition that berth fulfils, in words, and wrong is set if it does not.
	must  string
	wrong bool
}

// figures are what was counted in a run.
type figures struct {
	wanted, planned, complete int
	// made and bought are of the provider, without the phase budget; refused are by outcome.
	made, bought int
	refused      map[outcome]int
	early        int
	lost, broken int
	durable      bool
	peaks        map[string]int
	// calm and flood are median waits of the team support.
	calm, flood time.Duration
	admitted    int
	// tokens are the provider's, of all phases; unsettled are those of calls that the killed process had.
	tokens, unsettled tokens
	charged           charged
	settled           bool
}

type tokens struct{ input, output int64 }

func (t tokens) sum() int64 { return t.input + t.output }

// peaks returns how many calls each account had at a time.
func (p *provider) peaks() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.peak)
}

// all returns copies of the attempts.
func (p *provider) all() (all []attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.attempts {
		all = append(all, *a)
	}
	return all
}

// figures counts what was observed.
func (r *run) figures() figures {
	f := figures{
		durable: r.durable, planned: r.size.wanted(), complete: r.complete, refused: map[outcome]int{}, lost: r.front.lost(),
		peaks: r.provider.peaks(), charged: r.charged, settled: r.settled,
	}
	had := r.had()
	began := map[call]time.Time{}
	for _, a := range r.provider.all() {
		f.tokens.input += int64(a.input)
		f.tokens.output += int64(a.output)
		if r.unsettled(a, had) {
			f.broken++
			f.unsettled.input += int64(a.input)
			f.unsettled.output += int64(a.output)
		}
		if a.early {
			f.early++
		}
		if _, again := began[a.call]; a.bought() && !again {
			began[a.call] = a.at
		}
		if a.call.phase() == phaseBudget {
			continue
		}
		f.made++
		if a.bought() {
			f.bought++
		} else {
			f.refused[a.outcome]++
		}
	}
	waits := map[string][]time.Duration{}
	for c, at := range r.front.calls() {
		answer, ok := began[c]
		switch phase := c.phase(); {
		case phase == phaseBudget && ok:
			f.admitted++
		case phase != phaseBudget:
			f.wanted++
			if team := teamOf(program{name: strings.TrimPrefix(c.topic, phase+"/")}); ok && team == support && at.Before(r.floodEnded) {
				waits[phase] = append(waits[phase], answer.Sub(at))
			}
		}
	}
	f.calm, f.flood = median(waits[phaseCalm]), median(waits[phaseStorm])
	return f
}

func median(of []time.Duration) time.Duration {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)/2]
}

// scoreboard compares the runs. portkey is nil if it did not run.
func scoreboard(berth, portkey *run) []line {
	b := berth.figures()
	if portkey == nil {
		return lines(b, nil)
	}
	p := portkey.figures()
	return lines(b, &p)
}

// lines are the lines of the scoreboard.
func lines(b figures, p *figures) (all []line) {
	add := func(name string, value func(figures) string, must string, holds bool) {
		l := line{name: name, berth: value(b), must: must, wrong: !holds}
		if p != nil {
			l.portkey = value(*p)
		}
		all = append(all, l)
	}
	number := func(n func(figures) int) func(figures) string {
		return func(f figures) string { return fmt.Sprint(n(f)) }
	}
	add("calls wanted by the programs", number(func(f figures) int { return f.wanted }),
		fmt.Sprintf("= %d, all calls of all programs", b.planned), b.wanted == b.planned)
	add("complete answers, counted by the programs", number(func(f figures) int { return f.complete }),
		"= calls wanted", b.complete == b.planned)
	add("requests made at the provider", number(func(f figures) int { return f.made }),
		fmt.Sprintf("= answers bought + %d without credit + %d in a pause + %d cut off before a token",
			b.refused[noCredit], b.refused[paused], b.refused[cutOff]),
		b.made == b.bought+b.refused[noCredit]+b.refused[paused]+b.refused[cutOff])
	bought, limit := fmt.Sprintf("<= calls wanted + %d that ran when the worker was killed", b.broken), b.wanted+b.broken
	if !b.durable {
		bought = fmt.Sprintf("<= calls wanted + %d that the killed process had + %d whose reply was lost", b.broken, b.lost)
		limit += b.lost
	}
	add("answers bought at the provider", number(func(f figures) int { return f.bought }), bought, b.bought >= b.wanted && b.bought <= limit)
	add("calls above a cap, which the provider refused", number(func(f figures) int { return f.refused[overCap] }), "= 0", b.refused[overCap] == 0)
	for _, a := range accounts {
		if a.empty {
			continue
		}
		add(fmt.Sprintf("peak of concurrent calls at %s, cap %d", a.name, a.cap), number(func(f figures) int { return f.peaks[a.name] }),
			"<= cap", b.peaks[a.name] <= a.cap)
	}
	add("calls to the account without credit", number(func(f figures) int { return f.refused[noCredit] }),
		fmt.Sprintf("<= %d, its cap: then it is paused", capOf(noCreditAccount)), b.refused[noCredit] <= capOf(noCreditAccount))
	add("calls to an account before its Retry-After had passed", number(func(f figures) int { return f.early }),
		fmt.Sprintf("= 0, but for those that arrived within %s of its refusal", noticed), b.early == 0)
	add("median wait of the team support, alone", wait(func(f figures) time.Duration { return f.calm }), "", true)
	add("median wait of the team support, in the flood of the other team", wait(func(f figures) time.Duration { return f.flood }),
		fmt.Sprintf("<= that without the flood + %s, which one answer takes", answerTime), b.flood <= b.calm+answerTime)
	add(fmt.Sprintf("admitted of %d calls at one time, budget for %d", budgetCalls, budgetRoom), number(func(f figures) int { return f.admitted }),
		fmt.Sprintf("= %d", budgetRoom), b.admitted == budgetRoom)
	return append(all, ledgerLines(b)...)
}

// ledgerLines compare what berth has charged with what the provider has counted. The other gateway has no ledger.
func ledgerLines(b figures) (all []line) {
	total := b.charged.input + b.charged.output
	least := b.tokens.sum() - b.unsettled.sum()
	must := fmt.Sprintf("%d to %d: what the provider counted, less at most those %d calls", least, b.tokens.sum(), b.broken)
	all = append(all, line{
		name: "tokens in berth's ledger", berth: fmt.Sprint(total), portkey: "-", must: must, wrong: total < least || total > b.tokens.sum(),
	}, line{
		name: "credits charged", berth: b.charged.credits.String(), portkey: "-", must: "= price of the tokens in the ledger",
		wrong: b.charged.credits != price(b.charged.input, b.charged.output),
	})
	if b.settled {
		all = append(all, line{
			name: "credits used of the teams' budgets", berth: b.charged.used.String(), portkey: "-",
			must: "= credits charged: all that was reserved was returned", wrong: b.charged.used != b.charged.credits,
		})
	}
	return all
}

const noCreditAccount = "void"

func capOf(name string) int {
	return accounts[slices.IndexFunc(accounts, func(a account) bool { return a.name == name })].cap
}

func wait(of func(figures) time.Duration) func(figures) string {
	return func(f figures) string { return of(f).Round(time.Millisecond).String() }
}

// render returns the scoreboard as a table, with a mark at the lines that are false.
func render(all []line, peer bool) string {
	var b strings.Builder
	b.WriteByte('\n')
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	column := func(of string) string {
		if !peer {
			return ""
		}
		return of + "\t"
	}
	fmt.Fprintf(w, "\tline\tberth\t%sberth must be\n", column("portkey"))
	for _, l := range all {
		mark := "ok"
		switch {
		case l.wrong:
			mark = "FALSE"
		case l.must == "":
			mark = ""
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s%s\n", mark, l.name, l.berth, column(l.portkey), l.must)
	}
	_ = w.Flush() // into memory
	return b.String()
}
