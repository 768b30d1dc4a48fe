package secret_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/secret"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestRead_File_IsTheTextWithoutItsEnd(t *testing.T) { // FM6
	t.Parallel()
	for text, want := range map[string]string{
		"abc": "abc", "abc\n": "abc", "abc\r\n": "abc", "abc\n\n": "abc", "\ufeffabc\r\n": "abc", " a b \n": "a b", "\u00a0abc\t": "abc",
		"pässwörd 密码": "pässwörd 密码",
	} {
		got, err := secret.New("X", "", file(t, text)).Read()
		require.NoError(t, err, "%q", text)
		require.Equal(t, want, got)
	}
	got, err := secret.NewLines("X", "", file(t, "a\nb\r\n")).Read()
	require.NoError(t, err)
	require.Equal(t, "a\nb", got)
}

func TestRead_FileNotUsable_ErrorNamesTheSetting(t *testing.T) { // FM6
	t.Parallel()
	closed := file(t, "hidden")
	require.NoError(t, os.Chmod(closed, 0))
	for name, c := range map[string]struct{ path, problem string }{
		"missing":     {filepath.Join(t.TempDir(), "none"), "no such file"},
		"directory":   {t.TempDir(), "regular file"},
		"pipe":        {"/dev/stdin", "regular file"},
		"empty":       {file(t, ""), "empty"},
		"line end":    {file(t, "\r\n"), "empty"},
		"two lines":   {file(t, "hidden\nhidden"), "more than one line"},
		"UTF-16":      {file(t, "\xff\xfeh\x00i\x00"), "UTF-8"},
		"binary":      {file(t, "hid\x00den"), "UTF-8"},
		"another one": {file(t, strings.Repeat("hidden", 200_000)), "more than"},
	} {
		_, err := secret.New("BERTH_X", "", c.path).Read()
		require.ErrorContains(t, err, c.problem, name)
		require.ErrorContains(t, err, "BERTH_X_FILE: ", name)
		require.NotContains(t, err.Error(), "hidden", name)
		require.True(t, secret.Named(err), name)
	}
}

func TestSecret_States_NameTheSettingInUse(t *testing.T) { // FM6
	t.Parallel()
	none, value, path := secret.New("X", "", ""), secret.New("X", "v", ""), secret.New("X", "", file(t, "f"))
	require.False(t, none.IsSet())
	require.NoError(t, none.Validate())
	require.Equal(t, "X", value.Setting())
	require.NoError(t, value.Validate())
	require.Equal(t, "X_FILE", path.Setting())
	require.NoError(t, path.Validate())
	require.ErrorContains(t, secret.New("X", "v", "f").Validate(), "set one of X and X_FILE, not both")

	cause := errors.New("no")
	require.EqualError(t, path.Refused(cause), "X_FILE: the server refused this secret: no")
	require.ErrorIs(t, path.Refused(cause), cause)
	require.ErrorContains(t, none.Refused(cause), "X: the server requires this secret, which is not set")
	require.Equal(t, path.Refused(cause).Error(), none.Refused(path.Refused(cause)).Error(), "the first name is kept")
}

func TestCached_FileChanges_AppliesAndKeepsTheLastOne(t *testing.T) { // FM6
	t.Parallel()
	path := file(t, "a\n")
	var log bytes.Buffer
	parse := func(text string) (string, error) {
		if text == "bad" {
			return "", errors.New("must not be bad")
		}
		return "<" + text + ">", nil
	}
	c, err := secret.NewCached(secret.New("X", "", path), parse, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	require.Equal(t, "<a>", c.Current())
	becomes := func(text string, done func() bool) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.Eventually(t, func() bool { c.Current(); return done() }, 10*time.Second, 10*time.Millisecond)
	}
	becomes("b", func() bool { return c.Current() == "<b>" })
	for text, problem := range map[string]string{"": "the file is empty", "bad": "must not be bad"} {
		becomes(text, func() bool { return strings.Contains(log.String(), problem) })
		require.Equal(t, "<b>", c.Current())
	}
	require.Contains(t, log.String(), "setting=X_FILE")
	becomes("c", func() bool { return c.Current() == "<c>" })

	_, err = secret.NewCached(secret.New("X", "", file(t, "bad")), parse, slog.Default())
	require.EqualError(t, err, "X_FILE: must not be bad")
	fixed, err := secret.NewCached(secret.New("X", "v", ""), parse, slog.Default())
	require.NoError(t, err)
	require.Equal(t, "<v>", fixed.Current())
}
