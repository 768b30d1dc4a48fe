package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAcceptedType_Qualities_HighestIsSent(t *testing.T) { // B12
	t.Parallel()
	const json = "application/json"
	for header, want := range map[string]string{
		"":                                      json,
		"*/*":                                   json,
		"application/*":                         json,
		"text/html":                             json,
		"application/x-ndjson":                  ndjson,
		"Application/X-NDJSON; charset=utf-8":   ndjson,
		"text/html, application/x-ndjson;q=0.9": ndjson,
		"application/x-ndjson;q=0":              json,
		"application/x-ndjson; q=0.0, */*":      json,
		"application/x-ndjson, */*":             ndjson,
		"*/*, application/x-ndjson":             ndjson,
		"application/x-ndjson;q=0.5, */*":       json,
		"application/json;q=0.5, text/csv;q=0.4, application/x-ndjson;q=0.6": ndjson,
		"application/json, application/x-ndjson;q=0.999":                     json,
		"text/csv, application/json":                                         csvType,
		"text/*":                                                             csvType,
		"application/x-ndjson;q=x":                                           json,
		"application/x-ndjson;q=, text/csv":                                  csvType,
		",;/,*,":                                                             json,
	} {
		require.Equal(t, want, acceptedType(header, ndjson, csvType), header)
	}
}
