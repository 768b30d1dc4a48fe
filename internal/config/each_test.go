package config_test

import (
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/config"
	"berth/internal/testdocs"
)

var update = flag.Bool("update", false, "write the generated part of docs/settings.md")

func TestDocs_Settings_AreThoseOfTheTags(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	group := "-"
	config.Each(new(config.Config), func(s config.Setting) {
		if s.Group != group {
			group = s.Group
			title := group
			if title == "" {
				title = "All processes"
			}
			fmt.Fprintf(&b, "\n## %s\n\n| variable | flag | default | bounds | meaning |\n| --- | --- | --- | --- | --- |\n", title)
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | %s | %s | %s |\n", s.Env, s.Flag, code(s.Default), bounds(s), strings.ReplaceAll(s.Help, "|", "\\|"))
	})
	b.WriteString("\n")
	testdocs.RequireBlock(t, "../../docs/settings.md", "settings", b.String(), *update)
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func bounds(s config.Setting) string {
	switch {
	case s.Min != "" && s.Max != "":
		return s.Min + " to " + s.Max
	case s.Min != "":
		return "from " + s.Min
	case s.Max != "":
		return "to " + s.Max
	}
	return ""
}

// Each bound of a tag is one of its setting's type, allows the default, and refuses what is beyond it.
func TestConfig_Bounds_RefuseWhatIsBeyond(t *testing.T) { // X6
	t.Parallel()
	step := func(s config.Setting, text string, by int64) string {
		if s.Value.Type() == reflect.TypeFor[time.Duration]() {
			d, err := time.ParseDuration(text)
			require.NoError(t, err, s.Env)
			return (d + time.Duration(by)).String()
		}
		var n int64
		_, err := fmt.Sscan(text, &n)
		require.NoError(t, err, s.Env)
		return fmt.Sprint(n + by)
	}
	bounded := 0
	config.Each(new(config.Config), func(s config.Setting) {
		if s.Value.CanInt() {
			require.True(t, s.Min != "" || s.Env == "BERTH_RECONCILE_FULL_EVERY" || s.Env == "BERTH_RETAIN_ROWS", "%s has no bound", s.Env)
		}
		for bound, by := range map[string]int64{s.Min: -1, s.Max: 1} {
			if bound == "" {
				continue
			}
			bounded++
			_, err := tryParse(t, "--"+s.Flag+"="+step(s, bound, by))
			require.ErrorContains(t, err, "--"+s.Flag+" ("+s.Env+"): must be at ", s.Env)
			require.ErrorContains(t, err, bound, s.Env)
		}
	})
	require.Greater(t, bounded, 30)
}
