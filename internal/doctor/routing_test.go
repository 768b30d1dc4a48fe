package doctor_test

import (
	"path/filepath"
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
	require.Len(t, got, 1)
	require.Equal(t, doctor.Warning, got[0].Level)
	require.Contains(t, got[0].Text, "is not used: it is revision 1, and all processes use revision 2 (olga)")
	require.Contains(t, got[0].Advice, "berth routing apply ")
}
