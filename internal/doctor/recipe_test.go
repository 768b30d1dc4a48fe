package doctor_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/doctor"
	"berth/internal/testredis"
)

// recipe returns the blocks of docs/deploy.md that are files, by name.
func recipe(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/deploy.md")
	require.NoError(t, err)
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)<!-- file: (\\S+) -->\n```\\w*\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		files[m[1]] = m[2]
	}
	return files
}

// The recipe for Redis with Sentinels works as it is written: doctor has no error and no risk of a failover, also after one, and names what
// differs from the recipe.
func TestRun_RecipeWithSentinels_FollowsTheMaster(t *testing.T) { // B7
	t.Parallel()
	files := recipe(t)
	for _, name := range []string{"redis.conf", "replica.conf", "sentinel.conf", "berth.env"} {
		require.NotEmpty(t, files[name], name)
	}
	s := testredis.StartFiles(t, testredis.Files{
		Master: files["redis.conf"], Replica: files["redis.conf"] + files["replica.conf"], Sentinel: files["sentinel.conf"],
		Password: "PASSWORD", SentinelPassword: "SENTINEL_PASSWORD",
	})
	settings := map[string]string{}
	for line := range strings.Lines(files["berth.env"]) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		settings[name] = value
	}
	settings["BERTH_REDIS_ADDR"] = s.Addr() // the test's own ports
	check := func(changes ...string) []doctor.Finding {
		t.Helper()
		args := []string{}
		for name, value := range settings {
			for i := 0; i < len(changes); i += 2 {
				if name == changes[i] {
					value = changes[i+1]
				}
			}
			args = append(args, "--"+strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "BERTH_")), "_", "-")+"="+value)
		}
		return run(t, "redis", time.Now, args...)
	}
	works := func() {
		t.Helper()
		var found []doctor.Finding
		require.Eventually(t, func() bool {
			found = check()
			return !doctor.Failed(found)
		}, 30*time.Second, 10*time.Millisecond)
		has(t, found, doctor.OK, "mode sentinel", "")
		for _, f := range found {
			require.NotEqual(t, doctor.Warning, f.Level, "%+v", f)
		}
	}
	works()
	has(t, check("BERTH_REDIS_SENTINEL_MASTER", "mymaster"), doctor.Error, `no Sentinel knows a master named "mymaster"`, "BERTH_REDIS_SENTINEL_MASTER: ")
	has(t, check("BERTH_REDIS_SENTINEL_PASSWORD", "wrong"), doctor.Error, "WRONGPASS", "BERTH_REDIS_SENTINEL_PASSWORD: ")
	has(t, check("BERTH_REDIS_SENTINEL_PASSWORD", ""), doctor.Error, "NOAUTH", "BERTH_REDIS_SENTINEL_PASSWORD: ")
	has(t, check("BERTH_REDIS_PASSWORD", "wrong"), doctor.Error, "WRONGPASS", "BERTH_REDIS_PASSWORD: ")
	s.Failover()
	works()
	s.Master().Kill()
	works()
}
