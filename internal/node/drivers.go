package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"berth"
)

// Driver runs a node's jobs. Its calls return when their context ends, after everything they started has ended. A
// failure is a *berth.Error: code invalid if no other node could do better with this input; any other code lets another
// node retry.
type Driver interface {
	Translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error)
	Execute(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error)
}

// DriverFlags are the command-line flags that choose and configure a driver. A new driver embeds its own flags here and
// gets a row in drivers.
type DriverFlags struct {
	Driver    string `help:"Driver that runs the jobs: ${enum}." enum:"${drivers}" required:""`
	ExecFlags `embed:""`
	HTTPFlags `embed:""`
}

// driverContext is what a driver may use besides its own flags.
type driverContext struct {
	DriverFlags
	spec   berth.NodeSpec
	logger *slog.Logger
}

// drivers maps the values of --driver to their constructors.
var drivers = map[string]func(driverContext) (Driver, error){
	"exec": newExecDriver,
	"http": newHTTPDriver,
}

// DriverNames returns the valid values of --driver, sorted.
func DriverNames() []string { return slices.Sorted(maps.Keys(drivers)) }

// NewDriver returns the driver that the flags choose for a node of this specification. Its error names the wrong flag.
func NewDriver(f DriverFlags, spec berth.NodeSpec, logger *slog.Logger) (Driver, error) {
	build, ok := drivers[f.Driver]
	if !ok {
		return nil, fmt.Errorf("--driver: must be one of %s", strings.Join(DriverNames(), ", "))
	}
	return build(driverContext{f, spec, logger})
}
