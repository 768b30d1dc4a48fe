package sim_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"berth"
	"berth/internal/llm"
	"berth/internal/template"
)

func TestZZ(t *testing.T) {
	f, _ := os.Create(os.Getenv("ZZ"))
	ticket := "From: Anna Berg\nSubject: Printer in room 12 is broken\n\nHello,\n\nthe printer in room 12 shows error E-42 since 2026-11-20. I restarted it twice, and it did not help.\nPlease send someone, we have to print 300 badges until Friday. You reach me at anna.berg@example.com."
	for _, one := range template.Builtin().Templates {
		for _, l := range locales {
			texts := map[string]string{"resume": file(t, "resume-"+string(l)+".txt"), "jobText": file(t, "posting-"+string(l)+".txt"), "ticket": ticket, "text": file(t, "posting-"+string(l)+".txt"), "language": "German"}
			if one.Name == "job_match" {
				texts["summary"] = ask(t, "job_summary", l, input("", texts["jobText"]))
			}
			m, err := one.Messages(context.Background(), one.Steps[len(one.Steps)-1].ID, l, template.Input{Texts: texts})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(f, "==== %s %s\n%s\n", one.Name, l, askMessages(t, llm.MessagesOf(m)))
		}
	}
	_ = berth.LocaleEN
}
