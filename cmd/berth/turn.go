package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/client"
)

type turnCommand struct {
	server  `embed:""`
	Session string `help:"Session; a new one by default." name:"session"`
	From    string `help:"Language that is spoken." default:"en"`
	To      string `help:"Language that is wanted." default:"es"`
	Speaker string `help:"Who speaks." default:"me"`
	Tenant  string `help:"Tenant of the session."`
}

// Help tells how to speak.
func (c *turnCommand) Help() string {
	return "Each line is a segment of the utterance; an empty line ends the utterance, and so does a pause of TURN_TIMEOUT_MS. " +
		"Translations come back in order, each with the node that did it. The end of the input ends the conversation."
}

// Run speaks what comes on standard input.
func (c *turnCommand) Run(ctx context.Context) error {
	if c.Session == "" {
		c.Session = "terminal-" + uuid.NewString()[:8]
	}
	api := c.client()
	s, err := api.PutSession(ctx, c.Session, client.SessionSpec{SrcLang: c.From, TgtLang: c.To, TenantID: c.Tenant})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "· session %s, %s to %s by pool %s; an empty line ends the utterance, Ctrl-D the conversation\n",
		s.ID, c.From, c.To, s.PreferredPool)
	t := conversation{
		api: api, session: c.Session, speaker: c.Speaker, out: os.Stdout, info: os.Stderr,
		begun: make(chan string, berth.MaxSegments),
	}
	return t.run(ctx, os.Stdin)
}

// conversation is what one person says in a session, and what comes back.
type conversation struct {
	api              *client.Client
	session, speaker string
	out, info        io.Writer
	// begun are the turns of this conversation, told to the listener; closed when nothing more will be said.
	begun chan string
	turn  string
	index int
}

func (t *conversation) run(ctx context.Context, in io.Reader) error {
	listening, stop := context.WithCancel(ctx)
	defer stop()
	g, listening := errgroup.WithContext(listening)
	g.Go(func() error { return t.listen(listening) })
	err := t.speak(listening, in)
	close(t.begun)
	if err != nil {
		stop()
	}
	return errors.Join(err, g.Wait())
}

// speak sends line by line until the input ends.
func (t *conversation) speak(ctx context.Context, in io.Reader) error {
	lines := make(chan string)
	var failed error
	go func() { // reading the terminal cannot be interrupted: it is left behind when ctx ends
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(nil, berth.MaxSegmentBytes)
		for s.Scan() {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
		failed = s.Err()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line, ok := <-lines:
			if !ok {
				return errors.Join(failed, t.finalize(ctx))
			}
			if err := t.line(ctx, strings.TrimSpace(line)); err != nil {
				return err
			}
		}
	}
}

func (t *conversation) line(ctx context.Context, text string) error {
	if text == "" {
		return t.finalize(ctx)
	}
	err := t.say(ctx, text)
	if problemCode(err) == berth.CodeTurnFinalized { // the pause ended it: this begins another
		t.turn = ""
		err = t.say(ctx, text)
	}
	return err
}

// say hands one segment in, asking again while there is no room.
func (t *conversation) say(ctx context.Context, text string) error {
	if t.turn == "" {
		t.index = 0
	}
	job := client.JobSpec{
		RequestID: uuid.NewString(), TurnID: t.turn, SpeakerID: t.speaker,
		Segment: client.Segment{Index: t.index, Text: text}, Finalize: berth.FinalizeMaxDuration,
	}
	for {
		d, err := t.api.Dispatch(ctx, t.session, job)
		var p *client.Problem
		if errors.As(err, &p) && p.RetryAfter > 0 && p.Code != berth.CodeRateLimited {
			fmt.Fprintf(t.info, "· %s; asking again in %d s\n", p.Detail, p.RetryAfter)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(p.RetryAfter) * time.Second):
				continue
			}
		}
		if err != nil {
			return err
		}
		if t.turn == "" {
			t.turn = d.TurnID
			t.begun <- d.TurnID
		}
		t.index++
		return nil
	}
}

func (t *conversation) finalize(ctx context.Context) error {
	if t.turn == "" {
		return nil
	}
	err := t.api.FinalizeTurn(ctx, t.turn)
	t.turn = ""
	if problemCode(err) == berth.CodeTurnFinalized {
		return nil
	}
	return err
}

func problemCode(err error) berth.Code {
	var p *client.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// listen prints what comes back, until every turn that was begun is done.
func (t *conversation) listen(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events := make(chan client.SessionEvent)
	var g errgroup.Group
	g.Go(func() error {
		defer close(events)
		for ev, err := range t.api.FollowSession(ctx, t.session, "", false) {
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			select {
			case events <- ev:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	open, done := map[string]bool{}, map[string]bool{}
	begun := t.begun
	for begun != nil || len(open) > 0 {
		select {
		case id, ok := <-begun:
			switch {
			case !ok:
				begun = nil
			case !done[id]:
				open[id] = true
			}
		case ev, ok := <-events:
			if !ok {
				return g.Wait()
			}
			t.show(ev.Event)
			if ev.Event.Type == berth.EventDone {
				done[ev.Event.TurnID] = true
				delete(open, ev.Event.TurnID)
			}
		}
	}
	stop()
	return g.Wait()
}

func (t *conversation) show(e berth.SessionEvent) {
	who, segment := "", 0
	if e.Index != nil {
		segment = *e.Index
	}
	if e.SpeakerID != "" && e.SpeakerID != t.speaker {
		who = printable(e.SpeakerID) + ": "
	}
	switch e.Type {
	case berth.EventTranslation:
		fmt.Fprintf(t.out, "%s%s\n", who, printable(e.Text))
		fmt.Fprintf(t.info, "  ↳ segment %d by %s\n", segment, e.NodeID)
	case berth.EventTranslationFailed:
		fmt.Fprintf(t.info, "  ✗ segment %d: %s (%s)\n", segment, printable(e.Message), e.Code)
	case berth.EventDone:
		fmt.Fprintf(t.info, "· %sutterance over (%s): %d segments, %d failed\n", who, e.Reason, e.Jobs, e.Failed)
	case berth.EventGap:
		fmt.Fprintln(t.info, "· part of the history is no longer kept")
	}
}
