package config

import (
	"fmt"
	"io"
	"net/url"
	"reflect"
	"strings"
	"text/tabwriter"
)

// Print writes one line for each setting: environment variable, current value and description. Secrets are hidden.
func (c *Config) Print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	printStruct(tw, reflect.ValueOf(*c))
	return tw.Flush()
}

func printStruct(w io.Writer, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		env := f.Tag.Get("env")
		if env == "" {
			printStruct(w, v.Field(i))
			continue
		}
		value := fmt.Sprint(v.Field(i).Interface())
		switch {
		case f.Tag.Get("secret") != "" && !v.Field(i).IsZero():
			value = "(set, hidden)"
		case f.Tag.Get("secret") != "":
			value = "(not set)"
		default:
			value = hidePassword(value)
		}
		help, _, _ := strings.Cut(f.Tag.Get("help"), ": ${")
		fmt.Fprintf(w, "%s\t%s\t%s\n", env, value, help)
	}
}

// hidePassword removes the password from a URL, such as that of a database.
func hidePassword(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	u, err := url.Parse(s)
	if err != nil {
		return "(not a URL, hidden)"
	}
	return u.Redacted()
}
