package payload_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/payload"
)

// key returns a key in base64 that consists of one repeated character.
func key(c string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(c, 32)))
}

func keys(t *testing.T, list string) payload.Keys {
	t.Helper()
	k, err := payload.ParseKeys(list)
	require.NoError(t, err)
	return k
}

func TestParseKeys_InvalidList_ErrorStatesProblem(t *testing.T) {
	t.Parallel()
	short := base64.StdEncoding.EncodeToString([]byte("sixteen bytes ok"))
	for list, want := range map[string]string{
		key("a"):                                "entry 1 must have the form id:base64",
		"a:" + key("a") + ",none":               "entry 2 must have the form id:base64",
		"a b:" + key("a"):                       "entry 1: invalid key id",
		":" + key("a"):                          "entry 1: invalid key id",
		"none:" + key("a"):                      "entry 1: invalid key id",
		"a:" + key("a") + ",a:" + key("b"):      "entry 2: the id is listed twice",
		"a:nonsense!":                           "entry 1 is not valid base64",
		"a:" + short:                            "entry 1: the key has 16 bytes; must have 32",
		"none":                                  "no key is listed",
		"a:" + key("a") + ",":                   "entry 2 must have the form id:base64",
		"none,b:" + key("b") + ",a:" + key("c"): "",
	} {
		_, err := payload.ParseKeys(list)
		if want == "" {
			require.NoError(t, err, list)
			continue
		}
		require.ErrorContains(t, err, want, list)
		for _, secret := range []string{key("a"), key("b"), short, "nonsense"} {
			require.NotContains(t, err.Error(), secret)
		}
	}
}

func TestParseKeys_FirstEntry_DecidesEncryption(t *testing.T) {
	t.Parallel()
	require.False(t, keys(t, "").Encrypt())
	require.False(t, keys(t, "none,a:"+key("a")).Encrypt())
	require.True(t, keys(t, "a:"+key("a")+", b:"+key("b")).Encrypt())
}
