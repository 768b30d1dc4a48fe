package doctor_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/doctor"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/testledger"
)

// G15: the routing file of a host is compared with the revision that all processes use.
func TestRouting_FileAndLedger_DifferenceFound(t *testing.T) {
	t.Parallel()
	dsn := testledger.Migrated.SQLite(t)
	l := testledger.Open(t, dsn)
	findings := func() (found []doctor.Finding) {
		for _, f := range run(t, "routing", time.Now, "--database="+dsn, "--routing-file="+filepath.Join("..", "llm", "routing.yaml")) {
			if f.Subject == "routing" {
				found = append(found, f)
			}
		}
		return found
	}
	require.Contains(t, findings()[0].Text, "the database has no routing yet")
	content, err := llm.ReadContent("")
	require.NoError(t, err)
	file := ledger.RoutingRevision{Hash: content.Hash, Source: ledger.RoutingFile, Content: content.Text}
	_, err = l.OfferRouting(t.Context(), file, false)
	require.NoError(t, err)
	require.Equal(t, []doctor.Finding{{Level: doctor.OK, Subject: "routing", Text: "the routing file is revision 1, which all processes use"}}, findings())
	_, err = l.PutRouting(t.Context(), ledger.RoutingRevision{Hash: "other", Source: ledger.RoutingAPI, CreatedBy: "olga", Content: "x"})
	require.NoError(t, err)
	got := findings()
	require.Len(t, got, 2, "and that this release cannot read the content")
	require.Equal(t, doctor.Warning, got[0].Level)
	require.Contains(t, got[0].Text, "is not used: it is revision 1, and all processes use revision 2 (olga)")
	require.Contains(t, got[0].Advice, "berth routing apply ")
}

// The models, their providers and the templates are checked by the routing that processes use, not by the file of this host.
func TestModels_RoutingInDatabase_ItIsChecked(t *testing.T) { // G15
	t.Parallel()
	dsn := testledger.Migrated.SQLite(t)
	l := testledger.Open(t, dsn)
	const text = "providers: {acme: {baseURL: \"http://127.0.0.1:9/v1\"}}\nmodels: {large: {provider: acme}, small: {provider: acme}}\n" +
		"routes: {default: {paid: large, free: small}}\n"
	content, err := llm.ParseContent("models.yaml", text)
	require.NoError(t, err)
	_, err = l.PutRouting(t.Context(), ledger.RoutingRevision{Hash: content.Hash, Source: ledger.RoutingAPI, CreatedBy: "olga", Content: content.Text})
	require.NoError(t, err)
	found := run(t, "models", time.Now, "--database="+dsn)
	require.Len(t, found, 1)
	require.Equal(t, "all 2 models have an address and a key", found[0].Text)

	metered, err := llm.ParseContent("models.yaml", strings.Replace(text, "small: {provider: acme}", "small: {provider: acme, credits: {input: 1}}", 1))
	require.NoError(t, err)
	_, err = l.PutRouting(t.Context(), ledger.RoutingRevision{Hash: metered.Hash, Source: ledger.RoutingAPI, CreatedBy: "olga", Content: metered.Text})
	require.NoError(t, err)
	has(t, run(t, "models", time.Now, "--database="+dsn), doctor.Warning, "models with credits and without maxOutputTokens: small", "the limit of the provider's model")

	_, err = l.PutRouting(t.Context(), ledger.RoutingRevision{Hash: "newer", Source: ledger.RoutingAPI, CreatedBy: "olga", Content: "models: {x: {new: 1}}"})
	require.NoError(t, err)
	has(t, run(t, "routing", time.Now, "--database="+dsn), doctor.Warning, "this release cannot read revision 3", "")
}
