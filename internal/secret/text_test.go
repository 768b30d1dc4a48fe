package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/secret"
)

// printed returns every form in which a value is printed, logged or encoded.
func printed(t *testing.T, v any) (all []string) {
	t.Helper()
	for _, verb := range []string{"%v", "%+v", "%#v", "%q", "%s", "%x", "%d", "%10.3s"} {
		all = append(all, fmt.Sprintf(verb, v), fmt.Sprintf(verb, struct{ Field any }{v}), fmt.Sprintf(verb, []any{v}), fmt.Sprintf(verb, map[string]any{"k": v}))
	}
	b, err := json.Marshal(map[string]any{"k": v})
	require.NoError(t, err)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
	return append(all, string(b), log.String(), fmt.Sprint(v), fmt.Sprintln(v), fmt.Errorf("e: %w, %v", fmt.Errorf("%v", v), v).Error())
}

func TestText_PrintedInAnyWay_IsHidden(t *testing.T) { // FI1
	t.Parallel()
	for _, v := range []any{
		secret.Text("hunter2"),
		[]secret.Text{"hunter2"},
		map[string]secret.Text{"k": "hunter2"},
		new(secret.Text("hunter2")),
		secret.New("BERTH_X", "hunter2", ""), secret.Address("postgres://app:hunter2@h/d"), secret.Address("hunter2"),
	} {
		for _, out := range printed(t, v) {
			require.NotContains(t, out, "hunter2", "%T", v)
			require.NotContains(t, strings.ToLower(out), fmt.Sprintf("%x", "hunter2"), "%T", v)
		}
	}
	require.Equal(t, "hunter2", string(secret.Text("hunter2")))
}

func TestMasked_Addresses_ShowOnlyWhatIsHarmless(t *testing.T) { // FI1
	t.Parallel()
	for address, want := range map[string]string{
		"":                            "",
		"127.0.0.1:6379":              "127.0.0.1:6379",
		"a:1, [::1]:2,c.example:3":    "a:1, [::1]:2,c.example:3",
		"sqlite:.berth/berth.db":      "sqlite:.berth/berth.db",
		"sqlite:/data dir/berth.db":   "sqlite:/data dir/berth.db",
		"redis://:S3@h:6379/0":        "redis://(hidden)@h:6379/0",
		"redis://S3@h":                "redis://(hidden)@h",
		"redis://S3:@h":               "redis://(hidden)@h",
		"rediss://app:S3@h:6379/0":    "rediss://app:(hidden)@h:6379/0",
		"https://ui.example/a/b?x=S3": "https://ui.example/a/b?x=(hidden)",
		"postgres://app:S%40%25@h1:5432,h2:5433/d?sslmode=verify-full&sslpassword=S3": "postgres://app:(hidden)@h1:5432,h2:5433/d?sslmode=verify-full&sslpassword=(hidden)",
		"postgres://h/db?user=app&password=S3":                                        "postgres://h/db?user=app&password=(hidden)",
		"postgres://[::1]:5432/db?PASSWORD=S3&sslrootcert=/ca.pem":                    "postgres://[::1]:5432/db?PASSWORD=(hidden)&sslrootcert=/ca.pem",
		"postgres://h/db?user=app;password=S3":                                        "postgres://h/db?user=(hidden)",
	} {
		require.Equal(t, want, secret.Masked(address), address)
	}
	for _, wrong := range wrongForms("S3") {
		require.NotContains(t, secret.Masked(wrong), "S3", wrong)
	}
}

// wrongForms returns addresses with a password as files bring them.
func wrongForms(password string) []string {
	forms := []string{
		"app:%s@h/d", "%s", "host=h user=app password=%s", "password='%s'", "h/d?password=%s", "jdbc:postgresql://h/d?password=%s",
		"postgres://app:%s/x@h/d", "postgres://app:%s", "postgres://app:a/%s@h/d", "postgres://app:a#%s@h/d", "postgres://app:a?%s@h/d",
		"postgres://app:a@%s@h/d", "postgres://app:a b%s@h/d", "postgres://app:100%%%s@h/d", "postgres://app:%s%%@h/d", "postgres://app:%s%%zz@h/d",
		"postgres://h/d?options=-c%%20%s", "postgres://h/d?user=app&pass word=%s", "postgres://h/d?user=a@b:%s", "postgres:// app:%s@h/d",
		"\"postgres://app:%s@h/d\"", "postgres//app:%s@h/d", "postgres:/app:%s@h/d", "POSTGRES://app:%s@h/d", "postgres://app:%s@h:port/d",
		"postgres://app:%s@h:99999999/d", "postgres://app:%s@[::1/d", "postgres://app:[%s@h/d", "redis://:%s", "redis://:%s@", "redis://h/0?password=%s",
		"postgres://h/d#%s", "postgres://app:%s\r", "postgres://\u00a0app:%s@h/d", "app:%s@a:1,b:2", "a:1,redis://:%s@b:2", "sqlite:postgres://app:%s@h/d",
		"sqlite:/x?_auth_pass=%s", "http://h/?a&%s", "postgres://h/d?%s",
	}
	for i, f := range forms {
		forms[i] = fmt.Sprintf(f, password)
	}
	return forms
}
