package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/devserver"
)

// announce prints the addresses of the running parts and writes them to ready.json.
func announce(out io.Writer, o *options, boot time.Duration) error {
	parts := slices.DeleteFunc(partNames(), func(p string) bool { return !o.runs(p) })
	r := devserver.Ready{
		PID: os.Getpid(), Parts: parts, BootMs: boot.Milliseconds(), Database: string(o.Database.URL),
		TemplatesDir: o.Model.TemplatesDir, RoutingFile: o.Model.RoutingFile,
	}
	if file, ok := strings.CutPrefix(r.Database, "sqlite:"); ok {
		if absolute, err := filepath.Abs(file); err == nil { // commands in other directories read it
			r.Database = "sqlite:" + absolute
		}
	}
	for _, at := range []*string{&r.TemplatesDir, &r.RoutingFile} {
		if absolute, err := filepath.Abs(*at); err == nil && *at != "" {
			*at = absolute
		}
	}
	fields := map[string]struct {
		label string
		field *string
	}{
		partRedis:    {"Redis", &r.RedisAddr},
		partTemporal: {"Temporal", &r.TemporalAddr},
		partUI:       {"Temporal UI", &r.TemporalUIAddr},
		partModel:    {"Local model", &r.ModelAddr},
		partAPI:      {"Page and API", &r.HTTPAddr},
	}
	_, _ = fmt.Fprintf(out, "ready in %.1f s; data in %s\n", boot.Seconds(), o.DataDir)
	for _, a := range o.addresses() {
		f := fields[a.part]
		*f.field = *a.addr
		shown := *a.addr
		if a.part != partRedis && a.part != partTemporal {
			shown = "http://" + shown
		}
		_, _ = fmt.Fprintf(out, "  %-13s %s\n", f.label, shown)
	}
	return r.Write(o.DataDir)
}
