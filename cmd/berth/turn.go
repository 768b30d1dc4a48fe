package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/internal/agent"
	"berth/internal/pause"
)

type turnCommand struct {
	agent.Server `embed:""`
	Session      string `help:"Use this session. Default: a new one." name:"session"`
	From         string `help:"Translate from this language." default:"en"`
	To           string `help:"Translate to this language." default:"es"`
	Speaker      string `help:"Set the speaker of the segments." default:"me"`
	Tenant       string `help:"Set the tenant of the session."`

	Wait time.Duration `help:"Fail when no node accepts a segment for this long." default:"1m"`
}

// Help describes the input and output.
func (c *turnCommand) Help() string {
	return "Each line of the input is a segment of a turn. An empty line ends the turn, and so does a pause of TURN_TIMEOUT_MS. " +
		"Translations are printed in order, each with the node that translated it. The command ends with the input, " +
		"or when no node accepts a segment within --wait."
}

// Run sends the lines of standard input.
func (c *turnCommand) Run(ctx context.Context, api *client.Client) error {
	if c.Session == "" {
		c.Session = "terminal-" + uuid.NewString()[:8]
	}
	s, err := api.PutSession(ctx, c.Session, client.SessionSpec{SrcLang: c.From, TgtLang: c.To, TenantID: c.Tenant})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "· session %s, %s to %s, pool %s; an empty line ends the turn, Ctrl-D the command\n",
		s.ID, s.SrcLang, s.TgtLang, s.PreferredPool)
	t := conversation{
		api: api, session: c.Session, speaker: c.Speaker, wait: c.Wait, out: os.Stdout, info: os.Stderr,
		begun: make(chan string, berth.MaxSegments),
	}
	return t.run(ctx, os.Stdin)
}

// conversation sends the segments of one speaker in a session and prints the results.
type conversation struct {
	api              *client.Client
	session, speaker string
	// wait limits the pauses between the attempts to send one segment.
	wait      time.Duration
	out, info io.Writer
	// begun passes the ids of started turns to listen. It is closed after the last segment.
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
	return errors.Join(unlessEnded(ctx, err), unlessEnded(ctx, g.Wait()))
}

// unlessEnded returns err unless it only states that the other part of the conversation has failed.
func unlessEnded(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return nil
	}
	return err
}

// speak sends each line until the input ends.
func (t *conversation) speak(ctx context.Context, in io.Reader) error {
	lines := make(chan string)
	var failed error
	go func() { // reading a terminal cannot be interrupted: the goroutine may outlive ctx
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
	err := t.send(ctx, text)
	if problemCode(err) == berth.CodeTurnFinalized { // it timed out: start another turn
		t.turn = ""
		err = t.send(ctx, text)
	}
	return err
}

// send submits one segment and retries while no node accepts it, within t.wait.
func (t *conversation) send(ctx context.Context, text string) error {
	if t.turn == "" {
		t.index = 0
	}
	job := client.JobSpec{
		RequestID: uuid.NewString(), TurnID: t.turn, SpeakerID: t.speaker,
		Segment: client.Segment{Index: t.index, Text: text}, Finalize: berth.FinalizeMaxDuration,
	}
	var waited time.Duration
	for {
		d, err := t.api.Dispatch(ctx, t.session, job)
		if p, ok := errors.AsType[*client.Problem](err); ok && p.RetryAfter > 0 && p.Code != berth.CodeRateLimited {
			again := time.Duration(p.RetryAfter) * time.Second
			if waited += again; waited > t.wait {
				return fmt.Errorf("no node accepted segment %d within %s (--wait): %w; start a node for these languages (`berth node run`)",
					t.index, t.wait, err)
			}
			fmt.Fprintf(t.info, "· %s; retrying in %d s\n", p.Detail, p.RetryAfter)
			if !pause.For(ctx, again) {
				return ctx.Err()
			}
			continue
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
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return p.Code
	}
	return ""
}

// listen prints results until every turn that was started is done.
func (t *conversation) listen(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	events := receive(ctx, &g, t.api.FollowSession(ctx, t.session, "", false))
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

// receive sends the values of a sequence to the channel that it returns, and closes that at the end of the sequence or of ctx.
func receive[T any](ctx context.Context, g *errgroup.Group, seq iter.Seq2[T, error]) <-chan T {
	values := make(chan T)
	g.Go(func() error {
		defer close(values)
		for v, err := range seq {
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			select {
			case values <- v:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	return values
}

func (t *conversation) show(e berth.SessionEvent) {
	speaker, segment := "", 0
	if e.Index != nil {
		segment = *e.Index
	}
	if e.SpeakerID != "" && e.SpeakerID != t.speaker {
		speaker = named(e.SpeakerID) + ": "
	}
	switch e.Type {
	case berth.EventTranslation:
		fmt.Fprintf(t.out, "%s%s\n", speaker, printable(e.Text))
		fmt.Fprintf(t.info, "  ↳ segment %d by %s\n", segment, e.NodeID)
	case berth.EventTranslationFailed:
		fmt.Fprintf(t.info, "  ✗ segment %d: %s (%s)\n", segment, printable(e.Message), e.Code)
	case berth.EventDone:
		fmt.Fprintf(t.info, "· %sturn done (%s): %d segments, %d failed\n", speaker, e.Reason, e.Jobs, e.Failed)
	case berth.EventGap:
		fmt.Fprintln(t.info, "· part of the history is no longer stored")
	}
}
