package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"berth"
	"berth/client"
)

// A task is submitted with an image and a text, and its tokens are printed as they arrive. Follow continues after lost
// connections; reset means that an attempt was lost and its text has to be discarded.
func ExampleClient_Follow() {
	ctx := context.Background()
	c := client.New("http://127.0.0.1:8080", token())
	image, err := os.ReadFile("examples/posting-en.png")
	if err != nil {
		log.Fatal(err)
	}
	posting, err := c.Upload(ctx, "posting.png", image)
	if err != nil {
		log.Fatal(err)
	}
	accepted, err := c.Submit(ctx, client.Submission{
		ServiceID: "career", Template: "job_match", Locale: berth.LocaleEN,
		Variables: map[string]any{
			"jobImage": client.AssetRef(posting),
			"resume":   "Six years of Go and PostgreSQL. Built Redis leases.",
		},
	}, "application-4711")
	var refused *client.Problem
	if errors.As(err, &refused) && refused.RetryAfter > 0 {
		log.Fatalf("place %d in the queue; retry in %d s", refused.Position, refused.RetryAfter)
	}
	if err != nil {
		log.Fatal(err)
	}
	for ev, err := range c.Follow(ctx, accepted.TaskID, "") {
		if err != nil {
			log.Fatal(err)
		}
		switch ev.Event.Type {
		case berth.EventQueued:
			fmt.Println("waiting for", ev.Event.Model)
		case berth.EventToken, berth.EventTokenBatch:
			fmt.Print(ev.Event.Text)
		case berth.EventReset:
			fmt.Println("\n--- again ---")
		case berth.EventError:
			log.Fatalf("%s: %s", ev.Event.Code, ev.Event.Message)
		}
	}
}

// A session has one utterance: two segments of a turn, whose translations arrive in order. The events are read from now on, so
// that earlier turns of the session are skipped.
func ExampleClient_FollowSession() {
	ctx := context.Background()
	c := client.New("http://127.0.0.1:8080", token())
	const session = "stand-up"
	if _, err := c.PutSession(ctx, session, client.SessionSpec{SrcLang: "en", TgtLang: "es"}); err != nil {
		log.Fatal(err)
	}
	first, err := c.Dispatch(ctx, session, client.JobSpec{
		RequestID: "utterance-1-0", Segment: client.Segment{Index: 0, Text: "Good morning."}, Finalize: berth.FinalizeMaxDuration,
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Dispatch(ctx, session, client.JobSpec{
		RequestID: "utterance-1-1", TurnID: first.TurnID, Segment: client.Segment{Index: 1, Text: "Thank you."},
		Finalize: berth.FinalizeManual, // the last segment of the turn
	}); err != nil {
		log.Fatal(err)
	}
	for ev, err := range c.FollowSession(ctx, session, "", false) {
		switch {
		case err != nil:
			log.Fatal(err)
		case ev.Event.TurnID != first.TurnID: // an earlier turn of the session
		case ev.Event.Type == berth.EventTranslation:
			fmt.Println(*ev.Event.Index, ev.Event.Text, "by", ev.Event.NodeID)
		case ev.Event.Type == berth.EventDone:
			return
		}
	}
}

// A conference of half an hour is opened for two participants. A LiveKit client connects with the URL and the token.
func ExampleClient_AddParticipant() {
	ctx := context.Background()
	c := client.New("http://127.0.0.1:8080", token())
	conference, err := c.CreateConference(ctx, client.ConferenceSpec{
		Title: "Stand-up", MaxParticipants: 2, DurationMs: (30 * time.Minute).Milliseconds(),
	})
	if err != nil {
		log.Fatal(err)
	}
	admission, err := c.AddParticipant(ctx, conference.E164, client.ParticipantSpec{Identity: "anna", Role: berth.RoleHost})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("connect to", admission.URL, "with", admission.Token)
	if err := c.RemoveParticipant(ctx, conference.E164, "anna"); err != nil {
		log.Fatal(err)
	}
	if _, err := c.EndConference(ctx, conference.E164); err != nil {
		log.Fatal(err)
	}
}

// An operator limits a model to three concurrent calls, pauses it, and restores the limit of the routing file.
func ExampleClient_PatchModel() {
	ctx := context.Background()
	c := client.New("http://127.0.0.1:8080", token())
	for _, change := range []map[string]any{
		{"cap": 3},
		{"paused": true, "reason": "the provider asked for a break"},
		{"cap": nil, "paused": false},
	} {
		m, err := c.PatchModel(ctx, "deepseek-chat", change)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d of %d slots in use, %d calls wait, paused: %t\n", m.Name, m.InUse, m.Cap, m.Waiting, m.Paused)
	}
}

// token returns the token of the caller: one of the identity provider, or of "berth token".
func token() string { return "…" }
