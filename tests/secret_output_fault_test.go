//go:build faults

package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// Each setting is planted alone, so that no earlier problem hides what is printed of it.
func TestSecrets_PlantedInOneSetting_AppearInNoOutput(t *testing.T) { // FI1
	t.Parallel()
	var g errgroup.Group
	g.SetLimit(2)
	valid := []string{
		"BERTH_AUTH_SECRET=" + secret, "BERTH_TEMPORAL_ADDR=127.0.0.1:1", "BERTH_REDIS_ADDR=127.0.0.1:1", "BERTH_TOKEN=t", "BERTH_URL=http://127.0.0.1:1",
		"LIVEKIT_URL=http://127.0.0.1:1", "LIVEKIT_API_SECRET=s", "BERTH_RECORD_URL=https://host.test", "BERTH_OIDC_ISSUER=https://127.0.0.1:1",
	}
	total := make(chan *search, 100)
	for _, p := range plantedSettings() {
		g.Go(func() error {
			s := &search{t: t, dir: t.TempDir()}
			for i := range p.forms() {
				what := fmt.Sprintf("%s, form %d", p.env, i)
				env := append(append([]string{}, valid...), p.env+"="+p.form(i))
				bin, args := "berth", []string{"api"}
				switch {
				case strings.HasPrefix(p.env, "LIVEKIT"):
					args = []string{"media", "--id=u", "--livekit-key=k"}
				case strings.HasPrefix(p.env, "BERTH_NODE"), p.env == "BERTH_TOKEN", p.env == "BERTH_URL":
					args = []string{"node", "--id=n", "--driver=http", "--capabilities=translate:en-es", "--http-url=http://127.0.0.1:1"}
				case p.env == "BERTH_TEMPORAL_DATABASE":
					bin, args = "berth-dev", []string{"--demo=off", "--temporal-addr=127.0.0.1:0", "--redis-addr=127.0.0.1:0", "--only=temporal"}
				case i%3 == 1:
					args = []string{"doctor"}
				case i%3 == 2:
					args = []string{"worker"}
				}
				s.run(what, bin, args, env)
				if bin == "berth" && p.scheme == "" {
					path := filepath.Join(s.dir, "file")
					require.NoError(t, os.WriteFile(path, []byte(p.form(i)), 0o600))
					s.run(what+" in a file", bin, args, append(append([]string{}, valid...), p.env+"=", p.env+"_FILE="+path))
				}
			}
			total <- s
			return nil
		})
	}
	require.NoError(t, g.Wait())
	close(total)
	runs, size := 0, 0
	for s := range total {
		runs, size = runs+s.runs, size+s.bytes
	}
	t.Logf("%d settings, %d runs, %d bytes of output", len(plantedSettings()), runs, size)
}
