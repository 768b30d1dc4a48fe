package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// readiness is what ready.json in the data folder says while everything is up: the signal for scripts and
// tests. Addresses of parts that do not run are left out.
type readiness struct {
	PID            int      `json:"pid"`
	Parts          []string `json:"parts"`
	BootMs         int64    `json:"bootMs"`
	HTTPAddr       string   `json:"httpAddr,omitempty"`
	TemporalAddr   string   `json:"temporalAddr,omitempty"`
	TemporalUIAddr string   `json:"temporalUiAddr,omitempty"`
	RedisAddr      string   `json:"redisAddr,omitempty"`
	ModelAddr      string   `json:"modelAddr,omitempty"`
	Database       string   `json:"database"`
}

func readyFile(o *options) string { return filepath.Join(o.DataDir, "ready.json") }

// announce tells people on out and programs by ready.json that everything is up.
func announce(out io.Writer, o *options, boot time.Duration) error {
	parts := slices.DeleteFunc(partNames(), func(p string) bool { return !o.runs(p) })
	r := readiness{PID: os.Getpid(), Parts: parts, BootMs: boot.Milliseconds(), Database: o.Database}
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
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("describe readiness: %w", err)
	}
	// Renamed into place: who sees the file can read all of it.
	draft := readyFile(o) + ".new"
	if err := os.WriteFile(draft, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write readiness: %w", err)
	}
	if err := os.Rename(draft, readyFile(o)); err != nil {
		return fmt.Errorf("write readiness: %w", err)
	}
	return nil
}

// withdraw takes ready.json away; a killed predecessor may have left one.
func withdraw(o *options) error {
	if err := os.Remove(readyFile(o)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove readiness: %w", err)
	}
	return nil
}
