// Command berth serves the API, polls task queues, runs node agents and is the terminal client.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"berth"
	"berth/internal/agent"
	"berth/internal/config"
	"berth/internal/identity"
	"berth/internal/node"
	"berth/internal/secret"
	"berth/internal/setting"
	"berth/internal/telemetry"
)

// version is set by the linker at release.
var version = "dev"

type commands struct {
	API        apiCommand         `cmd:"" name:"api" help:"Serve the HTTP API and the page."`
	Worker     workerCommand      `cmd:"" help:"Run workflows and activities from task queues."`
	Node       nodeCommands       `cmd:"" help:"Run a node agent; list, cordon and drain nodes."`
	Media      mediaCommand       `cmd:"" help:"Run a media unit agent: keep conferences on a LiveKit server."`
	Token      tokenCommand       `cmd:"" help:"Issue a bearer token."`
	Template   templateCommands   `cmd:"" help:"List, check, render, export, apply and activate templates."`
	Task       taskCommands       `cmd:"" help:"Submit, watch, get, list and cancel tasks."`
	Account    accountCommands    `cmd:"" help:"Show and change the credits of users."`
	Team       teamCommands       `cmd:"" help:"List and define teams, which share the models by weight."`
	App        appCommands        `cmd:"" help:"List and define applications of teams."`
	Key        keyCommands        `cmd:"" help:"Create, list, change and revoke API keys."`
	Budget     budgetCommands     `cmd:"" help:"List and define budgets of API keys and teams."`
	Webhook    webhookCommands    `cmd:"" help:"Define the URLs to which events about ended work are sent, and list what was sent."`
	Pool       poolCommands       `cmd:"" help:"List and define pools."`
	Execution  executionCommands  `cmd:"" help:"Submit, watch, list and cancel executions."`
	Model      modelCommands      `cmd:"" help:"List, pause, resume and limit models."`
	Queue      queueCommands      `cmd:"" help:"List queues, and show why calls wait."`
	Usage      usageCommand       `cmd:"" help:"Sum model calls with their tokens and costs."`
	Routing    routingCommands    `cmd:"" help:"Print which models the steps of templates use."`
	Import     importCommands     `cmd:"" help:"Convert configurations of other programs."`
	Apply      applyCommand       `cmd:"" help:"Create and change the teams, applications, API keys, budgets and the routing that a file declares."`
	Reconcile  reconcileCommand   `cmd:"" help:"Compare everything that is open in the database, Temporal and Redis, and repair differences."`
	Rollout    rolloutCommands    `cmd:"" help:"Change the version of the workers without interrupting runs."`
	Turn       turnCommand        `cmd:"" help:"Translate text from standard input in a live session."`
	Conference conferenceCommands `cmd:"" help:"Open, watch, list and end conferences."`
	Config     configCommand      `cmd:"" help:"Print the settings in use, without secrets."`
	Doctor     doctorCommand      `cmd:"" help:"Check the settings and the servers that they name, and print what to change."`
	Health     healthCommand      `cmd:"" help:"Check a process, as the health check of a container."`
	Version    kong.VersionFlag   `help:"Print the version."`
}

// settings is embedded by every command that runs a server process.
type settings struct {
	config.Config `embed:""`
}

// ProvideLogger returns the logger that kong passes to Run.
func (s settings) ProvideLogger() (*slog.Logger, error) {
	return telemetry.Logger(os.Stderr, s.LogLevel, s.LogFormat)
}

func main() {
	// The first signal starts a graceful stop, the second ends the process immediately.
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as after nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	context.AfterFunc(ctx, stop)

	var cmd commands
	k, err := kong.New(&cmd,
		kong.Name("berth"),
		kong.Description("A durable dispatcher for scarce capacity. Most flags have an environment variable; `berth config` prints the settings in use."),
		kong.ShortUsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		enums(), config.Clean(),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Exit(func(status int) {
			if status != 0 {
				status = statusWrong
			}
			os.Exit(status)
		}),
	)
	if err != nil {
		panic(err) // a flag of this program is declared wrongly
	}
	command, err := k.Parse(os.Args[1:])
	err = explainFlag(config.Explain(err, os.Args[1:]))
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok && logsJSON(wrong.Context) {
		logFatal(err)
		os.Exit(statusWrong)
	}
	k.FatalIfErrorf(err)
	for _, text := range config.Misspelled(k.Model, os.Environ()) {
		warn(command, text)
	}
	if err := command.Run(); err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			os.Exit(statusInterrupted)
		}
		if logsJSON(command) {
			logFatal(err)
		} else {
			fmt.Fprintln(os.Stderr, "berth:", explain(err))
		}
		os.Exit(statusOf(err))
	}
}

// The statuses with which commands exit, besides 0. docs/operations.md describes them.
const (
	statusFailed      = 1
	statusWrong       = 2
	statusInterrupted = 130
)

// statusOf returns statusWrong for an error that lasts until an argument, a setting, a file that it names, or a right is changed.
func statusOf(err error) int {
	var wrong *setting.WrongError
	if errors.As(err, &wrong) || secret.Named(err) {
		return statusWrong
	}
	return statusFailed
}

// logsJSON reports whether the log of a command is JSON.
func logsJSON(command *kong.Context) bool { return config.LogFormat(command, os.Args[1:]) == "json" }

// warn states that a command ignores something.
func warn(command *kong.Context, text string) {
	if logsJSON(command) {
		logger, _ := telemetry.Logger(os.Stderr, "warn", "json") // the level is valid
		logger.Warn("setting ignored", "reason", text)
		return
	}
	fmt.Fprintln(os.Stderr, "berth: warning:", text)
}

// logFatal writes the error with which a command ends to its log.
func logFatal(err error) {
	logger, _ := telemetry.Logger(os.Stderr, "error", "json") // the level is valid
	logger.Error("command failed", "error", explain(err))
}

// explain returns the text of an error of a command, with what to do if the API is unreachable.
func explain(err error) string {
	if call := new(url.Error); errors.As(err, &call) {
		return err.Error() + "; set BERTH_URL if the API has another address"
	}
	return err.Error()
}

// enums returns the variables of flags: values that come from the domain's tables.
func enums() kong.Vars {
	return kong.Vars{
		"version":             version,
		"conference_statuses": join(berth.ConferenceStatuses()),
		"node_kinds":          join(agent.NodeKinds()),
		"drivers":             strings.Join(node.DriverNames(), ","),
		"scopes":              strings.Join(identity.ScopeNames(), ","),
	}
}

func join[T ~string](values []T) string {
	s := make([]string, len(values))
	for i, v := range values {
		s[i] = string(v)
	}
	return strings.Join(s, ",")
}
