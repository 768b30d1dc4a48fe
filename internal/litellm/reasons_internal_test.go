package litellm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A name has one reason in a table: which of two would be given is not defined.
func TestReasons_EachTable_NamesOnce(t *testing.T) { // O10
	t.Parallel()
	for i, table := range []reasons{paramReasons, infoReasons, routerReasons, litellmReasons, generalReasons, sectionReasons} {
		seen := map[string]bool{}
		for _, names := range table {
			for _, name := range strings.Fields(names) {
				require.False(t, seen[name], "table %d: %s", i, name)
				seen[name] = true
			}
		}
	}
}

func TestWhy_NameOrItsBeginning_MostExactReason(t *testing.T) { // O10
	t.Parallel()
	for name, want := range map[string]string{
		"database_url": inDatabase, "database_connection_timeout": stores, "master_key": "a secret, and " + access, "other": "berth has no counterpart",
	} {
		require.Equal(t, want, why(name, generalReasons), name)
	}
	for name, want := range map[string]string{"input_cost_per_second": otherPrice, "aws_region_name": "a setting of a provider that does not speak OpenAI's protocol", "cache": noReuse} {
		require.Equal(t, want, why(name, paramReasons), name)
	}
	require.Equal(t, strict, why("drop_params", litellmReasons, routerReasons))
	require.Equal(t, repeats, why("num_retries", litellmReasons, routerReasons))
}
