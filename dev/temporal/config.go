package temporal

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	server "go.temporal.io/server/temporal"

	"berth/internal/freeport"
)

const (
	loopback    = "127.0.0.1"
	clusterName = "active"
	store       = "sql"
)

// dynamicConfig returns the settings that differ from Temporal's defaults, with the caller's overrides:
//
//   - By default, the queue processors of a history shard poll at most 20 times a second, so that each workflow task
//     takes 50 ms to arrive; with 5,000 it takes a few milliseconds.
//   - One partition per task queue: with the default of four, a thousand node queues would need four times the polls.
//   - namespaceCount bounds concurrent long polls: each node has its own queue and poller.
//   - The polls of a worker that stops end immediately; by default they continue for up to a minute, and the server sends tasks to
//     a worker that takes none.
//   - A caller that waits for a workflow's result is notified through a channel of capacity one. If the channel is full, the
//     notification is dropped, and the caller gets the result at the end of its long poll: after one second instead of
//     twenty (measured in 1 of 60 to 500 short workflows).
//   - By default, a queue groups unfinished tasks by namespace at each checkpoint and from then on scans all of them for every
//     new task; with one namespace this has no benefit.
//   - A queue counts a finished task as pending until its next checkpoint, and by default stops reading at 10,000. With one shard,
//     1,000 tasks of berth within the 30 seconds between checkpoints reached it, and no workflow advanced for up to 15 seconds.
//   - A list of workflows reads the search attributes of each row again, because they may have been added a moment ago. By default, a list
//     of 1,000 workflows is refused for its reads.
//   - The default caches and worker pools are sized for large servers; these fit one machine.
func dynamicConfig(overrides map[string]any) dynamicconfig.StaticClient {
	const queuePolls, queueWorkers, pendingTasks = 5000, 64, 200_000
	settings := dynamicconfig.StaticClient{
		dynamicconfig.TransferProcessorMaxPollRPS.Key():   queuePolls,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():      queuePolls,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key(): queuePolls,
		dynamicconfig.OutboundProcessorMaxPollRPS.Key():   queuePolls,

		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,

		dynamicconfig.FrontendMaxConcurrentLongRunningRequestsPerInstance.Key(): 25_000,
		dynamicconfig.FrontendRPS.Key():                                         20_000,
		dynamicconfig.FrontendMaxNamespaceRPSPerInstance.Key():                  20_000,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key():        200,
		dynamicconfig.FrontendPersistenceMaxQPS.Key():                           20_000,
		dynamicconfig.MatchingRPS.Key():                                         20_000,
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key():             true,

		dynamicconfig.EnableCancelWorkerPollsOnShutdown.Key(): true,

		dynamicconfig.HistoryLongPollExpirationInterval.Key():  time.Second,
		dynamicconfig.QueueShrinkPredicateMaxPendingKeys.Key(): 0,
		dynamicconfig.QueuePendingTaskCriticalCount.Key():      pendingTasks * 9 / 10,
		dynamicconfig.QueuePendingTaskMaxCount.Key():           pendingTasks,

		dynamicconfig.HistoryCacheHostLevelMaxSize.Key():             4096,
		dynamicconfig.EventsHostLevelCacheMaxSizeBytes.Key():         16 << 20,
		dynamicconfig.TransferProcessorSchedulerWorkerCount.Key():    queueWorkers,
		dynamicconfig.TimerProcessorSchedulerWorkerCount.Key():       queueWorkers,
		dynamicconfig.VisibilityProcessorSchedulerWorkerCount.Key():  queueWorkers,
		dynamicconfig.ArchivalProcessorSchedulerWorkerCount.Key():    8,
		dynamicconfig.ReplicationProcessorSchedulerWorkerCount.Key(): 8,
	}
	for name, value := range overrides {
		settings[dynamicconfig.MakeKey(name)] = value
	}
	return settings
}

// serverConfig returns the configuration and the addresses of the server's four services. Only the frontend's port is
// fixed; the others use free ports, so that any number of servers can run at the same time. They are reserved until release is called,
// because the server binds them later.
func serverConfig(o Options) (_ *config.Config, _ map[primitives.ServiceName]static.Hosts, release func(), err error) {
	frontend, err := net.ResolveTCPAddr("tcp", o.FrontendAddr)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("temporal address: %w", err)
	}
	if frontend.Port == 0 {
		return nil, nil, nil, fmt.Errorf("temporal address %s: a port is required", o.FrontendAddr)
	}
	var reserved []func()
	release = func() {
		for _, f := range reserved {
			f()
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	database := databaseConfig(o.DBFile)
	if o.Postgres != "" {
		if database, err = postgresConfig(o.Postgres); err != nil {
			return nil, nil, nil, err
		}
	}
	services := make(map[string]config.Service, len(server.DefaultServices))
	hosts := make(map[primitives.ServiceName]static.Hosts, len(server.DefaultServices))
	for _, name := range server.DefaultServices {
		rpc := config.RPC{BindOnLocalHost: true}
		if name == string(primitives.FrontendService) {
			rpc = config.RPC{GRPCPort: frontend.Port, BindOnIP: bindIP(frontend)}
		} else {
			port, unreserve, err := freeport.Reserve()
			if err != nil {
				return nil, nil, nil, fmt.Errorf("port of temporal's %s service: %w", name, err)
			}
			rpc.GRPCPort, reserved = port, append(reserved, unreserve)
		}
		services[name] = config.Service{RPC: rpc}
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(net.JoinHostPort(loopback, strconv.Itoa(rpc.GRPCPort)))
	}
	public := net.JoinHostPort(dialIP(frontend), strconv.Itoa(frontend.Port))
	hosts[primitives.FrontendService] = static.SingleLocalHost(public)

	return &config.Config{
		Global: config.Global{
			Membership: config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: loopback},
			TLS:        tlsConfig(o.TLS),
		},
		Persistence: config.Persistence{
			DefaultStore:     store,
			VisibilityStore:  store,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{store: {SQL: database}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: public},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		Archival: config.Archival{
			History:    config.HistoryArchival{State: "disabled"},
			Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
		PublicClient: config.PublicClient{HostPort: public},
	}, hosts, release, nil
}

// tlsConfig returns the configuration of the frontend and of the server's own workers, which are its clients. The other
// services listen on loopback only, without TLS.
func tlsConfig(t *TLS) config.RootTLS {
	if t == nil {
		return config.RootTLS{}
	}
	authorities := []string{t.Client.CA}
	return config.RootTLS{
		Frontend: config.GroupTLS{Server: config.ServerTLS{
			CertFile: t.Cert, KeyFile: t.Key, ClientCAFiles: authorities, RequireClientAuth: true,
		}},
		SystemWorker: config.WorkerTLS{
			CertFile: t.Client.Cert, KeyFile: t.Client.Key,
			Client: config.ClientTLS{ServerName: t.Client.ServerName, RootCAFiles: authorities},
		},
	}
}

func bindIP(a *net.TCPAddr) string {
	if a.IP == nil {
		return net.IPv4zero.String()
	}
	return a.IP.String()
}

// dialIP returns the IP address at which this process reaches a, which may mean all interfaces.
func dialIP(a *net.TCPAddr) string {
	if a.IP == nil || a.IP.IsUnspecified() {
		return loopback
	}
	return a.IP.String()
}
