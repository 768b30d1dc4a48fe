package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
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

func TestAccount_OwnID_IsReadWithoutTheScopeOperator(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/me") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"userId":"alice","credits":7,"tier":"paid","entries":[]}`)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"status":403,"code":"forbidden","detail":"the token lacks the scope operator"}`)
	}))
	defer srv.Close()
	api := client.New(srv.URL, "t")
	for _, user := range []string{"", "alice"} {
		require.NoError(t, (&accountShow{User: user}).Run(t.Context(), api), user)
		require.NoError(t, (&accountEntries{User: user}).Run(t.Context(), api), user)
	}
	require.ErrorContains(t, (&accountShow{User: "bob"}).Run(t.Context(), api), "the token lacks the scope operator")
	require.ErrorContains(t, (&accountEntries{User: "bob"}).Run(t.Context(), api), "the token lacks the scope operator")
}
