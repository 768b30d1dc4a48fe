// Command job runs a job in the background that survives the crash of this program. Run it again, here or where its file is: it continues where it was.
//
//	go run ./job report.json 'Write a report about rivers.'
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// job is what is known of a job. Its key is stored before the request is sent: the same request with it returns the same response.
type job struct {
	file string

	Key    string `json:"key"`
	Model  string `json:"model"`
	Input  string `json:"input"`
	ID     string `json:"id,omitempty"`
	After  int64  `json:"after"` // number of the last event, -1 before the first
	Text   string `json:"text"`
	Status string `json:"status,omitempty"` // of a response that has ended
	Error  string `json:"error,omitempty"`
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: job FILE [INPUT]")
		os.Exit(2)
	}
	j := &job{file: os.Args[1], Key: rand.Text(), Model: cmp.Or(os.Getenv("MODEL"), "deepseek-chat"), Input: "Write a report about rivers.", After: -1}
	if len(os.Args) > 2 {
		j.Input = os.Args[2]
	}
	if err := j.run(context.Background(), openai.NewClient()); err != nil { // reads OPENAI_BASE_URL and OPENAI_API_KEY
		fmt.Fprintln(os.Stderr, "job:", err)
		os.Exit(1)
	}
	fmt.Println(j.Text)
	if j.Status != string(responses.ResponseStatusCompleted) {
		fmt.Fprintln(os.Stderr, "job:", j.ID, j.Status, j.Error)
		os.Exit(1)
	}
}

func (j *job) run(ctx context.Context, client openai.Client) error {
	if err := j.load(); err != nil {
		return err
	}
	if j.ID == "" {
		if err := j.create(ctx, client); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "%s: continues after event %d\n", j.ID, j.After)
	for j.Status == "" {
		err := j.follow(ctx, client)
		var refused *openai.Error
		if errors.As(err, &refused) && refused.StatusCode < 500 && refused.StatusCode != 429 {
			return err // such as 404: it does not get better
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: after event %d: %v\n", j.ID, j.After, err)
		}
		if j.Status == "" {
			time.Sleep(time.Second) //nolint:forbidigo // a pause before the next connection
		}
	}
	return nil
}

func (j *job) create(ctx context.Context, client openai.Client) error {
	if err := j.save(); err != nil {
		return err
	}
	response, err := client.Responses.New(ctx, responses.ResponseNewParams{
		Model: j.Model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(j.Input)}, Background: openai.Bool(true),
	}, option.WithHeader("Idempotency-Key", j.Key))
	if err != nil {
		return err
	}
	j.ID = response.ID
	return j.save()
}

// follow reads the events until the response or the connection ends.
func (j *job) follow(ctx context.Context, client openai.Client) error {
	params := responses.ResponseGetParams{}
	if j.After >= 0 {
		params.StartingAfter = openai.Int(j.After)
	}
	stream := client.Responses.GetStreaming(ctx, j.ID, params)
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		event := stream.Current()
		switch event.Type {
		case "error": // the rest comes on another connection
			return errors.New(event.Message)
		case "response.output_text.delta":
			j.Text += event.Delta
		case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
			j.Status, j.Error = string(event.Response.Status), event.Response.Error.Message
		}
		j.After = event.SequenceNumber
		// With replaceResponses of the key, an answer that breaks off is made again from its beginning.
		if next, ok := event.Response.JSON.ExtraFields["replaced_by"]; ok {
			j.Status, j.Text, j.After = "", "", -1
			if err := json.Unmarshal([]byte(next.Raw()), &j.ID); err != nil {
				return err
			}
		}
		if err := j.save(); err != nil {
			return err
		}
	}
	return stream.Err()
}

func (j *job) load() error {
	b, err := os.ReadFile(j.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(b, j)
}

// save replaces the file: a crash leaves a whole one.
func (j *job) save() error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := os.WriteFile(j.file+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(j.file+".new", j.file)
}
