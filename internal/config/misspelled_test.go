package config

import (
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

func TestMisspelled_VariableIsNearASetting_SaysWhichIsMeant(t *testing.T) {
	t.Parallel()
	k, err := kong.New(new(struct {
		Config `embed:""`
	}))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		environ []string
		meant   string
	}{
		"a letter is missing":       {[]string{"BERTH_REDIS_ADR=x"}, "BERTH_REDIS_ADDR"},
		"two are added":             {[]string{"BERTH_REDIS_ADDRXY=x"}, "BERTH_REDIS_ADDR"},
		"letters are exchanged":     {[]string{"BERTH_REIDS_ADDR=x"}, "BERTH_REDIS_ADDR"},
		"small letters":             {[]string{"berth_redis_addr=x"}, "BERTH_REDIS_ADDR"},
		"the prefix is wrong":       {[]string{"BIRTH_REDIS_ADDR=x"}, "BERTH_REDIS_ADDR"},
		"right":                     {[]string{"BERTH_REDIS_ADDR=x"}, ""},
		"both are set":              {[]string{"BERTH_REDIS_ADDR=x", "BERTH_REDIS_ADR=x"}, ""},
		"of a service, Kubernetes":  {[]string{"BERTH_SERVICE_HOST=10.0.0.1", "BERTH_PORT=tcp://10.0.0.1:8080", "BERTH_PORT_8080_TCP=tcp://10.0.0.1:8080"}, ""},
		"of another program":        {[]string{"BERTH_MODEL_ADDR=x", "BERTH_TEMPORAL_UI_ADDR=x", "BERTH_DEMO=1"}, ""},
		"of an executor":            {[]string{"BERTH_USER_ID=x", "BERTH_JOB_ID=x"}, ""},
		"without a text, no prefix": {[]string{"PATH=/bin", "HTTP_PROXY=x", "EMPTY"}, ""},
	} {
		texts := Misspelled(k.Model, c.environ)
		if c.meant == "" {
			require.Empty(t, texts, name)
			continue
		}
		require.Len(t, texts, 1, name)
		require.Contains(t, texts[0], c.meant+"?", name)
	}
}
