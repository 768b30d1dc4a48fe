package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/client"
)

func TestTask_UnknownID_ErrorNamesItAndWhatToCheck(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"status":404,"code":"not_found","detail":"not found"}`)
	}))
	defer srv.Close()
	api := client.New(srv.URL, "t")
	for name, err := range map[string]error{
		"get":    (&taskGet{ID: "x"}).Run(t.Context(), api),
		"watch":  (&taskWatch{ID: "x"}).Run(t.Context(), api),
		"cancel": (&taskCancel{ID: "x"}).Run(t.Context(), api),
	} {
		require.ErrorContains(t, err, "task x not found: check the id, and that BERTH_TOKEN belongs to the user who submitted it", name)
	}
}
