// Package testclients tries the official clients of OpenAI's protocol.
package testclients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/sim"
	"berth/internal/testprovider"
)

// Suite is what clients are tried with, a table in docs/openai.md: Features are its rows, and Clients its columns.
type Suite struct {
	Features []string
	Clients  []Client

	inGo func(url, key string) map[string]func(*testing.T)
}

// Client is an official client. Program tries the features in Node, and is empty for Go; Lacks are those that the client itself does not have.
type Client struct {
	Name, Program string
	Lacks         []string
}

// Calls are the calls of models.
var Calls = Suite{
	Features: []string{
		"chat", "stream", "tools", "structured output", "image", "several choices", "logprobs", "embeddings", "models",
		"unknown model", "wrong key", "unknown parameter", "abort", "error in a stream", "retry after 429", "retry after 5xx",
	},
	Clients: []Client{
		{Name: "openai-go"},
		{Name: "openai", Program: "openai.mjs"},
		{Name: "ai", Program: "ai.mjs", Lacks: []string{"several choices", "logprobs", "models"}},
		{Name: "@langchain/openai", Program: "langchain.mjs", Lacks: []string{"models"}},
	},
	inGo: goFeatures,
}

// Responses are the responses, of keys with durable calls.
var Responses = Suite{
	Features: []string{
		"create", "stream", "background", "resume", "cancel", "delete", "conversation", "tools", "structured output", "image", "unknown parameter",
		"error in a stream",
	},
	Clients: []Client{
		{Name: "openai-go"},
		{Name: "openai", Program: "responses.mjs"},
		{Name: "@ai-sdk/openai", Program: "ai_responses.mjs", Lacks: []string{"background", "resume", "cancel", "delete"}},
	},
	inGo: goResponses,
}

// Programs is the directory of the programs, for tests of the packages api and tests.
const Programs = "../api/testdata/clients"

// Try tries every feature that a client has with the model large at an address. noNode is why those for Node cannot run, empty if they can.
func (s Suite) Try(t *testing.T, client Client, noNode, url, key string) {
	t.Helper()
	if client.Program != "" && noNode != "" {
		t.Skip(noNode)
	}
	tried := map[string]func(*testing.T){}
	if client.Program == "" {
		tried = s.inGo(url, key)
	} else {
		for _, line := range run(t, client.Program, url, key) {
			tried[line.Feature] = func(t *testing.T) {
				t.Log(line.Detail)
				require.True(t, line.OK)
			}
		}
	}
	features := slices.DeleteFunc(slices.Clone(s.Features), func(f string) bool { return slices.Contains(client.Lacks, f) })
	require.ElementsMatch(t, features, slices.Collect(maps.Keys(tried)), "what the program tries")
	for _, feature := range features {
		t.Run(feature, tried[feature])
	}
}

// Install installs the clients for Node. Without Node it returns what is missing.
func Install(t *testing.T) (missing string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../scripts/npm.sh", "api/testdata/clients").CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() == 3 {
		return string(out)
	}
	require.NoError(t, err, "%s", out)
	return ""
}

// Tried is the outcome of a feature.
type Tried struct {
	Feature string `json:"feature"`
	OK      bool   `json:"ok"`
	Detail  string `json:"detail"`
}

// run runs a program of a client.
func run(t *testing.T, file, url, key string) (lines []Tried) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", file) //nolint:gosec // one of All
	cmd.Dir = Programs
	// Nothing else: the clients read settings of their own.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BERTH_URL=" + url + "/openai/v1", "BERTH_KEY=" + key} //nolint:forbidigo // to find node
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", file, stderr.String())
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var line Tried
		err := dec.Decode(&line)
		if errors.Is(err, io.EOF) {
			return lines
		}
		require.NoError(t, err, "%s: %s", file, out)
		lines = append(lines, line)
	}
}

var imageURL = regexp.MustCompile(`data:image/[^"]*`)

// Provider answers as the simulator, but for what that does not do, which words in the messages demand: see testdata/clients/run.mjs.
func Provider() http.HandlerFunc {
	simulator := sim.ModelServer(sim.Options{})
	left := make(chan struct{}, 1)
	// A call is made three times before the client has the error.
	first := func(fault http.HandlerFunc) http.HandlerFunc {
		var calls atomic.Int64
		return func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) <= 3 {
				fault(w, r)
				return
			}
			simulator.ServeHTTP(w, r)
		}
	}
	answers := map[string]http.HandlerFunc{
		`"logprobs":true`: testprovider.Replay([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" +
			`{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop","logprobs":{"content":[` +
			`{"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[{"token":"Hi","logprob":-0.5,"bytes":[72,105]}]}],"refusal":null}}]}`)),
		"[hang]": func(w http.ResponseWriter, r *http.Request) {
			testprovider.Hang("The ans")(w, r)
			left <- struct{}{}
		},
		"[left]": func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-left:
				testprovider.Write(0, "The caller has left.")(w, r)
			case <-time.After(10 * time.Second):
				testprovider.Status(http.StatusBadRequest, "has_not_left")(w, r)
			}
		},
		"[cut]":     testprovider.Cut("The ans"),
		"[limited]": first(testprovider.Limited(3 * time.Second)), // clients wait up to 2 s by themselves
		"[failing]": first(testprovider.Status(http.StatusInternalServerError, "server_error")),
	}
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // it is in memory
		r.Body = io.NopCloser(bytes.NewReader(body))
		if url := imageURL.Find(body); url != nil {
			testprovider.Write(0, "The image is "+string(url))(w, r)
			return
		}
		for word, answer := range answers {
			if bytes.Contains(body, []byte(word)) {
				answer(w, r)
				return
			}
		}
		simulator.ServeHTTP(w, r)
	}
}
