package setting_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/setting"
)

func TestClean_Texts_AreTrimmed(t *testing.T) { // FI5
	t.Parallel()
	for text, want := range map[string]string{
		"": "", " ": "", "\r\n": "", "\ufeff": "", "a": "a", "a\r": "a", "a\r\n": "a", "\ta b ": "a b", "\ufeffa\n\n": "a", "\u00a0a\u00a0": "a", "a\u200b": "a", "密码": "密码",
		"\u2003a\u3000": "a", "it's": "it's", "a\"b": "a\"b",
	} {
		for _, kind := range []setting.Kind{setting.Plain, setting.Secret, setting.Lines} {
			got, err := setting.Clean(kind, text)
			require.NoError(t, err, "%q", text)
			require.Equal(t, want, got, "%q", text)
		}
	}
}

func TestClean_WhatCannotBeMeant_IsRefusedWithoutTheText(t *testing.T) { // FI5
	t.Parallel()
	all := []setting.Kind{setting.Plain, setting.Secret, setting.Lines}
	for text, c := range map[string]struct {
		problem string
		kinds   []setting.Kind
	}{
		"\"hidden\"":       {"has quotes around it", all},
		"'hidden'":         {"has quotes around it", all},
		"“hidden”":         {"has quotes around it", all},
		"`hidden`\r\n":     {"has quotes around it", all},
		"\"hidden":         {"has quotes around it", all[:1]},
		"hidden'":          {"has quotes around it", all[:1]},
		"hid\x00den":       {"an invisible character (U+0000)", all},
		"hid\x1b[31mden":   {"an invisible character (U+001B)", all},
		"hid\u0085den":     {"an invisible character (U+0085)", all},
		"hidden\nhidden":   {"a line end (U+000A)", all[:2]},
		"hidden\r\nhidden": {"a carriage return (U+000D)", all[:2]},
		"hid\tden":         {"a tab (U+0009)", all[:2]},
		"hid\u00a0den":     {"a no-break space (U+00A0)", all[:1]},
		"hid\u200bden":     {"a zero-width space (U+200B)", all[:1]},
		"hid\u202eden":     {"an invisible character (U+202E)", all[:1]},
		"hidden\xff":       {"must be a text in UTF-8", all},
	} {
		for _, kind := range all {
			_, err := setting.Clean(kind, text)
			refused := false
			for _, k := range c.kinds {
				refused = refused || k == kind
			}
			if !refused {
				require.NoError(t, err, "%q, kind %d", text, kind)
				continue
			}
			require.ErrorContains(t, err, c.problem, "%q, kind %d", text, kind)
			require.NotContains(t, err.Error(), "hid", "%q", text)
		}
	}
	_, err := setting.Clean(setting.Lines, `"id": "secret"`)
	require.NoError(t, err, "quotes of YAML do not enclose the text")
}

func TestHostPort_Addresses_StateWhatIsWrong(t *testing.T) { // FI5
	t.Parallel()
	for addr, problem := range map[string]string{
		"127.0.0.1:7233": "", "[::1]:7233": "", "a.example:1": "", ":80": "", "h:0": "", "[fe80::1%eth0]:80": "",
		"": "the port is missing", "host": "the port is missing", "host:": "port from 0 to 65535", "host:http": "port from 0", "h:99999": "port from 0", "h:+1": "port from 0",
		"::1:7233": "in brackets: [::1]:7233", "::1:21901": "in brackets: [::1]:21901", "fe80::2:80": "in brackets: [fe80::2]:80", "::1:hidden": "in brackets: [::1]:port", "[::1]": "in brackets", "http://h:1": "without a scheme", "u:p@h:1": "without user", "h:1/x": "without user", "h h:1": "a space",
	} {
		err := setting.HostPort(addr)
		if problem == "" {
			require.NoError(t, err, addr)
			continue
		}
		require.ErrorContains(t, err, problem, addr)
	}
}

func TestCollide_Addresses_OfOneProcess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{":80", "127.0.0.1:80", true},
		{"[::1]:80", "[::]:80", true},
		{"a.example:80", "0.0.0.0:80", true},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{":80", "off", false},
	} {
		require.Equal(t, c.want, setting.Collide(c.a, c.b), c)
		require.Equal(t, c.want, setting.Collide(c.b, c.a), c)
	}
}
