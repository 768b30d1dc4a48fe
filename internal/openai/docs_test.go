package openai

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/llm"
	"berth/internal/testdocs"
)

var update = flag.Bool("update", false, "write the tables of docs/openai.md")

// docs/openai.md has the tables.
func TestDocs_OpenAI_HaveTheTables(t *testing.T) { // O1, O5
	t.Parallel()
	const page = "../../docs/openai.md"
	testdocs.RequireBlock(t, page, "parameters of a chat", fieldTable(chatFields), *update)
	testdocs.RequireBlock(t, page, "parameters of embeddings", fieldTable(embeddingFields), *update)
	var codes, failures strings.Builder
	codes.WriteString("| code of berth | status | type | code | retried |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range berth.Codes() {
		if row, ok := codeRows[c.Code]; ok {
			fmt.Fprintf(&codes, "| `%s` | %s |\n", c.Code, row.cells())
		}
	}
	testdocs.RequireBlock(t, page, "codes", codes.String(), *update)
	failures.WriteString("| cause | status | type | code | retried |\n| --- | --- | --- | --- | --- |\n")
	for _, cause := range llm.Causes() {
		row, ok := causeRows[cause]
		require.True(t, ok, "the cause %s has no row", cause)
		fmt.Fprintf(&failures, "| `%s` | %s |\n", cause, row.cells())
	}
	testdocs.RequireBlock(t, page, "failures of providers", failures.String(), *update)
	require.Len(t, causeRows, len(llm.Causes()))
}

func fieldTable(fields []field) string {
	var b strings.Builder
	b.WriteString("| parameter | what the provider gets | what berth does |\n| --- | --- | --- |\n")
	for _, f := range fields {
		use := map[llm.FieldUse]string{llm.FieldForwarded: "as sent", llm.FieldChanged: "changed", llm.FieldOwn: "nothing"}[f.use]
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, use, f.does)
	}
	return b.String()
}

func (r errorRow) cells() string {
	code, retried := "`"+r.code+"`", "yes"
	if r.code == "" {
		code = "of the provider"
	}
	if r.final {
		retried = "no"
	}
	return fmt.Sprintf("%d %s | `%s` | %s | %s", r.status, http.StatusText(r.status), r.kind, code, retried)
}

// Each row is an error, with what the client reads.
func TestErrorOf_EachKind_OwnWordsOnly(t *testing.T) { // O5
	t.Parallel()
	for name, row := range map[string]struct {
		err  error
		want Error
	}{
		"a field":            {berth.Invalid("model", "no such model"), Error{400, "no such model", TypeRequest, "model", "invalid_value", 0, true}},
		"wrapped":            {fmt.Errorf("call: %w", berth.Errorf(berth.CodeRateLimited, "too many")), Error{429, "too many", TypeLimit, "", "rate_limit_exceeded", berth.CodeRateLimited.Info().RetryAfter, false}},
		"a cause in it":      {berth.Errorf(berth.CodeUnavailable, "later").With(fmt.Errorf("redis: secret")), Error{503, "later", TypeServer, "", "unavailable", berth.CodeUnavailable.Info().RetryAfter, false}},
		"unknown":            {fmt.Errorf("pq: secret"), Error{500, "internal error: see the log of the server for this request", TypeServer, "", "internal_error", 0, false}},
		"a refusal":          {&berth.Refusal{Code: berth.CodeUnavailable, Message: "m", RetryAfter: 7}, Error{503, "m", TypeServer, "", "unavailable", 7, false}},
		"of another kind":    {berth.Errorf(berth.CodeNodeFull, "full"), Error{500, "full", TypeServer, "", "internal_error", berth.CodeNodeFull.Info().RetryAfter, false}},
		"a limit":            {&llm.CallError{Cause: llm.CauseLimit, Message: "m", RetryAfter: 9, Retryable: true}, Error{429, "m", TypeLimit, "", "rate_limit_exceeded", 9, false}},
		"the context":        {&llm.CallError{Cause: llm.CauseContext, Message: "m", Said: llm.ProviderError{Message: "8192", Param: "messages", Code: "string_too_long"}}, Error{400, "8192", TypeRequest, "messages", "context_length_exceeded", 0, true}},
		"the filter":         {&llm.CallError{Cause: llm.CauseRefused, Message: "m", Said: llm.ProviderError{Message: "no", Code: "ResponsibleAIPolicyViolation"}}, Error{400, "no", TypeRequest, "", "ResponsibleAIPolicyViolation", 0, true}},
		"a 422":              {&llm.CallError{Cause: llm.CauseBadRequest, Message: "m", Status: 422}, Error{422, "m", TypeRequest, "", "", 0, true}},
		"without a call":     {&llm.CallError{Code: berth.CodeProviderKey, Message: "m"}, Error{502, "m", TypeServer, "", "provider_key", 0, true}},
		"already a client's": {&Error{Status: 418}, Error{Status: 418}},
	} {
		require.Equal(t, row.want, *ErrorOf(row.err), name)
	}
	require.Nil(t, ErrorOf(nil))
}
