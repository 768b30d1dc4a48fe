package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/sim"
	"berth/internal/testdocs"
	"berth/internal/testprovider"
)

// clientFeatures are the rows of the table of clients in docs/openai.md.
var clientFeatures = []string{
	"chat", "stream", "tools", "structured output", "image", "several choices", "logprobs", "embeddings", "models",
	"unknown model", "wrong key", "unknown parameter", "abort", "error in a stream", "retry after 429", "retry after 5xx",
}

// officialClients are the columns of the table. program tries the features in Node; lacks are those that the client itself does not have.
var officialClients = []struct {
	name, program string
	lacks         []string
}{
	{name: "openai-go"},
	{name: "openai", program: "openai.mjs"},
	{name: "ai", program: "ai.mjs", lacks: []string{"several choices", "logprobs", "models"}},
	{name: "@langchain/openai", program: "langchain.mjs", lacks: []string{"models"}},
}

const clientPrograms = "testdata/clients"

// Official clients are used as they are published: each feature that a client has works.
func TestOpenAI_OfficialClients_EveryFeatureWorks(t *testing.T) { // O1, O5, O7, O10
	t.Parallel()
	noNode := installClients(t)
	for _, client := range officialClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			if client.program != "" && noNode != "" {
				t.Skip(noNode)
			}
			m := newModels(t, []int{4})
			m.providers[0].Answer(clientProvider())
			tried := map[string]func(*testing.T){}
			if client.program == "" {
				tried = goFeatures(m)
			} else {
				for _, line := range m.program(client.program) {
					tried[line.Feature] = func(t *testing.T) {
						t.Log(line.Detail)
						require.True(t, line.OK)
					}
				}
			}
			features := slices.DeleteFunc(slices.Clone(clientFeatures), func(f string) bool { return slices.Contains(client.lacks, f) })
			require.ElementsMatch(t, features, slices.Collect(maps.Keys(tried)), "what the program tries")
			for _, feature := range features {
				t.Run(feature, tried[feature])
			}
			require.Eventually(t, func() bool { return m.count("calls") == 0 }, 10*time.Second, 20*time.Millisecond, "a call was not settled")
		})
	}
}

// installClients installs the clients for Node. Without Node it returns what is missing.
func installClients(t *testing.T) (missing string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../scripts/npm.sh", "api/"+clientPrograms).CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() == 3 {
		return string(out)
	}
	require.NoError(t, err, "%s", out)
	return ""
}

type featureLine struct {
	Feature string `json:"feature"`
	OK      bool   `json:"ok"`
	Detail  string `json:"detail"`
}

// program runs a program of a client.
func (m *models) program(file string) (lines []featureLine) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", file)
	cmd.Dir = clientPrograms
	// Nothing else: the clients read settings of their own.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BERTH_URL=" + m.base + "/openai/v1", "BERTH_KEY=" + m.secret} //nolint:forbidigo // to find node
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(m.t, err, "%s: %s", file, stderr.String())
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var line featureLine
		if err := dec.Decode(&line); errors.Is(err, io.EOF) {
			return lines
		} else {
			require.NoError(m.t, err, "%s: %s", file, out)
		}
		lines = append(lines, line)
	}
}

var imageURL = regexp.MustCompile(`data:image/[^"]*`)

// clientProvider answers as the simulator, but for what that does not do, which words in the messages demand: see testdata/clients/run.mjs.
func clientProvider() http.HandlerFunc {
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

func TestOpenAI_DocsOfClients_HaveTheTable(t *testing.T) { // O10
	t.Parallel()
	var b strings.Builder
	head, line, versions := "|", "| ---", "| version"
	for _, c := range officialClients {
		head += " | `" + c.name + "`"
		line += " | ---"
		versions += " | " + clientVersion(t, c.name)
	}
	fmt.Fprintf(&b, "%s |\n%s |\n%s |\n", head, line, versions)
	for _, feature := range clientFeatures {
		fmt.Fprintf(&b, "| %s", feature)
		for _, c := range officialClients {
			if slices.Contains(c.lacks, feature) {
				b.WriteString(" | –")
			} else {
				b.WriteString(" | yes")
			}
		}
		b.WriteString(" |\n")
	}
	testdocs.RequireBlock(t, "../docs/openai.md", "clients", b.String(), *update)
}

// clientVersion returns the version of a client that the tests use.
func clientVersion(t *testing.T, name string) string {
	t.Helper()
	if name == "openai-go" {
		mod, err := os.ReadFile("../go.mod")
		require.NoError(t, err)
		found := regexp.MustCompile(`openai/openai-go/v\d+ v(\S+)`).FindSubmatch(mod)
		require.NotNil(t, found)
		return string(found[1])
	}
	text, err := os.ReadFile(clientPrograms + "/package.json")
	require.NoError(t, err)
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	require.NoError(t, json.Unmarshal(text, &manifest))
	require.Contains(t, manifest.Dependencies, name)
	return manifest.Dependencies[name]
}
