package config

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"

	"berth/internal/secret"
)

// Print writes one line for each setting: environment variable, current value and description. Secrets are hidden.
func (c *Config) Print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	Each(c, func(s Setting) { fmt.Fprintf(tw, "%s\t%s\t%s\n", s.Env, shown(s.Value), s.Help) })
	return tw.Flush()
}

// shown returns what is printed of a setting.
func shown(v reflect.Value) string {
	element := v.Type()
	if v.Kind() == reflect.Slice {
		element = element.Elem()
	}
	switch {
	case element == textType && v.Len() == 0:
		return "(not set)"
	case element == textType:
		return "(set, hidden)"
	case v.Type() == addressType:
		return fmt.Sprint(v.Interface())
	}
	text := fmt.Sprint(v.Interface())
	if strings.Contains(text, "://") || strings.Contains(text, "@") { // an address in the place of something else
		return secret.Masked(text)
	}
	return text
}
