package doctor_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/doctor"
	"berth/internal/testoidc"
	"berth/internal/testredis"
)

// FI7: the exact issuer is in the advice. What an API process says of other causes is in the tests of package identity.
func TestRun_IdentityProvider_IssuerToSetIsPrinted(t *testing.T) {
	t.Parallel()
	d := testoidc.Serve(t, "/realms/main", (*httptest.Server).Start)
	found := run(t, "identity", time.Now, "--oidc-issuer="+d.Issuer)
	has(t, found, doctor.OK, "keys that verify tokens: k", "")
	has(t, found, doctor.OK, "its clock differs", "")
	require.Len(t, found, 2)
	has(t, run(t, "identity", func() time.Time { return time.Now().Add(time.Minute) }, "--oidc-issuer="+d.Issuer), doctor.Warning, "its clock differs", "NTP")

	found = run(t, "identity", time.Now, "--oidc-issuer="+d.Issuer+"/")
	require.False(t, doctor.Failed(found))
	has(t, found, doctor.Warning, "differs from BERTH_OIDC_ISSUER by a slash", "set BERTH_OIDC_ISSUER="+d.Issuer)
	has(t, run(t, "identity", time.Now, "--jwks-url="+d.URL+testoidc.KeysPath), doctor.OK, "keys that verify tokens: k", "")

	d.SetDiscovery(testoidc.Answer(d.Discovery("https://login.example/main/"), "application/json"))
	has(t, run(t, "identity", time.Now, "--oidc-issuer="+d.Issuer), doctor.Error, "states another issuer", "set BERTH_OIDC_ISSUER=https://login.example/main/")
	has(t, run(t, "identity", time.Now, "--oidc-issuer=http://127.0.0.1:1"), doctor.Error, "refused", "check BERTH_OIDC_ISSUER")
}

// A server whose response takes long has no other clock because of that.
func TestRun_ServerRespondsLate_ClockIsNotBlamed(t *testing.T) {
	t.Parallel()
	provider, server := testoidc.Serve(t, "", (*httptest.Server).Start), testredis.Start(t)
	for section, setting := range map[string]string{"identity": "--oidc-issuer=" + provider.Issuer, "redis": "--redis-addr=" + server.Addr()} {
		calls := 0
		late := func() time.Time { // of each two calls, the first is five seconds earlier
			calls++
			return time.Now().Add(-time.Duration(calls%2) * 5 * time.Second)
		}
		has(t, run(t, section, late, setting), doctor.OK, "its clock differs from this host's by less than", "")
	}
}
