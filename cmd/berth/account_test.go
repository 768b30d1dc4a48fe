package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/client"
)

func TestAccountCredit_Refused_RetryIsAdvisedOnlyIfItCanSucceed(t *testing.T) {
	t.Parallel()
	credit := accountCredit{User: "bob", Amount: 5, Reason: "r", Key: "k1"}
	for status, advised := range map[int]bool{400: false, 403: false, 409: false, 429: true, 500: true, 503: true} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"status":%d,"code":"c","detail":"refused"}`, status)
		}))
		defer srv.Close()
		err := credit.Run(t.Context(), client.New(srv.URL, "t"))
		require.ErrorContains(t, err, "refused", status)
		if advised {
			require.ErrorContains(t, err, "a retry with --key k1 adds the credits once", status)
		} else {
			require.NotContains(t, err.Error(), "retry", status)
		}
	}
	srv := httptest.NewServer(nil)
	srv.Close()
	err := credit.Run(t.Context(), client.New(srv.URL, "t"))
	require.Equal(t, "the API at "+srv.URL+" is unreachable: connection refused; a retry with --key k1 adds the credits once; "+
		"set BERTH_URL if the API has another address", explain(err))
}
