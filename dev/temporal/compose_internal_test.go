package temporal

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.yaml.in/yaml/v3"
)

// The server of docker-compose.yml has the settings of the development server, except those that fit one machine.
func TestDynamicConfig_OfDockerCompose_EqualsDevelopment(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "temporal", "dynamicconfig.yaml"))
	require.NoError(t, err)
	loaded := dynamicconfig.LoadYamlFile(text)
	require.NoError(t, loaded.Err())
	require.Empty(t, loaded.Warnings, "a setting that the server does not know")
	development := dynamicConfig(nil)
	for key, values := range loaded.Map {
		require.Len(t, values, 1, key)
		want, ok := development[key]
		require.True(t, ok, "%s is not set in development", key)
		if d, ok := want.(time.Duration); ok {
			want = d.String()
		}
		require.EqualValues(t, want, values[0].Value, key)
	}
	for _, local := range []dynamicconfig.Key{
		// The size of the machine.
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key(), dynamicconfig.EventsHostLevelCacheMaxSizeBytes.Key(),
		dynamicconfig.QueuePendingTaskCriticalCount.Key(), dynamicconfig.QueuePendingTaskMaxCount.Key(),
		dynamicconfig.TransferProcessorSchedulerWorkerCount.Key(), dynamicconfig.TimerProcessorSchedulerWorkerCount.Key(),
		dynamicconfig.VisibilityProcessorSchedulerWorkerCount.Key(), dynamicconfig.ArchivalProcessorSchedulerWorkerCount.Key(),
		dynamicconfig.ReplicationProcessorSchedulerWorkerCount.Key(),
		// For tests; deploy/temporal/namespace.sh waits instead. Without the first, lists need no more reads than by default.
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(), dynamicconfig.FrontendPersistenceMaxQPS.Key(),
	} {
		delete(development, local)
	}
	for key := range development {
		require.Contains(t, loaded.Map, key)
	}
}

// The server's image reads its configuration from these variables only.
func TestServerConfig_OfDockerCompose_UsesItsDatabases(t *testing.T) {
	var compose struct {
		Services map[string]struct{ Environment map[string]string }
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docker-compose.yml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &compose))
	for name, value := range compose.Services["temporal"].Environment {
		t.Setenv(name, value)
	}
	cfg, err := config.Load(config.WithEmbedded())
	require.NoError(t, err)
	require.NoError(t, cfg.Validate())
	require.EqualValues(t, 128, cfg.Persistence.NumHistoryShards)
	stores := cfg.Persistence.DataStores
	for store, database := range map[string]string{
		cfg.Persistence.DefaultStore: "temporal", cfg.Persistence.VisibilityStore: "temporal_visibility",
	} {
		require.Equal(t, "postgres12", stores[store].SQL.PluginName)
		require.Equal(t, "postgres:5432", stores[store].SQL.ConnectAddr)
		require.Equal(t, database, stores[store].SQL.DatabaseName)
		require.Equal(t, "temporal", stores[store].SQL.User)
	}
	require.Equal(t, 7233, cfg.Services["frontend"].RPC.GRPCPort)
	require.Equal(t, 7243, cfg.Services["frontend"].RPC.HTTPPort)
	require.Equal(t, "0.0.0.0:8000", cfg.Global.Metrics.Prometheus.ListenAddress)
	require.Equal(t, "/etc/berth/dynamicconfig.yaml", cfg.DynamicConfigClient.Filepath)
}
