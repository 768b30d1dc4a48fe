package llm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

// Keys in files are read for each call; the error of a call names the setting in use.
func TestKeys_FilesChange_NextCallUsesThem(t *testing.T) { // FM6
	t.Parallel()
	routing, err := LoadConfig("")
	require.NoError(t, err)
	one, several := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "several")
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(one, "first\n")
	write(several, "# keys of providers\n\n")
	c, err := NewCatalog(routing, Settings{KeyFiles: map[string]string{"DEEPSEEK_API_KEY": one}, KeysFile: several})
	require.NoError(t, err)
	call := func() endpoint {
		_, ep, err := c.endpoint("deepseek-chat", "")
		require.NoError(t, err)
		return ep
	}
	require.Equal(t, "first", call().key)
	require.Equal(t, "DEEPSEEK_API_KEY_FILE", call().keySetting)
	write(one, "second\r\n")
	require.Equal(t, "second", call().key)
	write(several, "OTHER=x\r\n DEEPSEEK_API_KEY = third = 3 \r\n")
	_, _, err = c.endpoint("deepseek-chat", "")
	require.ErrorContains(t, err, "check BERTH_PROVIDER_KEYS_FILE", "a key has no spaces")
	write(several, "OTHER=x\r\n DEEPSEEK_API_KEY = third=3 \r\n")
	require.Equal(t, "third=3", call().key)
	require.Equal(t, "DEEPSEEK_API_KEY in BERTH_PROVIDER_KEYS_FILE", call().keySetting)

	write(several, "export DEEPSEEK_API_KEY=\"fourth\"\n")
	require.Equal(t, "fourth", call().key)

	write(several, "# none\n")
	write(one, "")
	_, _, err = c.endpoint("deepseek-chat", "")
	require.ErrorContains(t, err, "check DEEPSEEK_API_KEY_FILE")
	require.Equal(t, berth.CodeProviderUnavailable, berth.CodeOf(err))
	var failed *CallError
	require.ErrorAs(t, err, &failed)
	require.True(t, failed.Retryable, "the operator can correct the file")
}

func TestSettings_KeysNotUsable_ErrorNamesTheSetting(t *testing.T) { // FM6
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "keys")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, c := range map[string]struct {
		settings Settings
		want     string
	}{
		"both":          {Settings{Keys: map[string]string{"A": "hidden"}, KeyFiles: map[string]string{"A": file("k")}}, "set one of A and A_FILE"},
		"missing":       {Settings{KeyFiles: map[string]string{"A": "/none"}}, "A_FILE"},
		"spaces":        {Settings{KeyFiles: map[string]string{"A": file("hidden key")}}, "A_FILE: contains characters"},
		"no name":       {Settings{KeysFile: file("A=1\nhidden")}, "BERTH_PROVIDER_KEYS_FILE: line 2 must be NAME=key"},
		"name of words": {Settings{KeysFile: file("A B=hidden")}, "BERTH_PROVIDER_KEYS_FILE: line 1 must be NAME=key"},
		"other script":  {Settings{KeysFile: file("A=hidden密")}, "BERTH_PROVIDER_KEYS_FILE: line 1 has characters"},
	} {
		err := c.settings.Validate()
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), "hidden", name)
	}
}
