package config

import (
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"berth/internal/setting"
)

// LogFormat returns the value of --log-format of a command that may not have been parsed; empty for a command without a log.
func LogFormat(command *kong.Context, args []string) (format string) {
	for _, f := range command.Flags() {
		if f.Name != "log-format" {
			continue
		}
		for _, env := range f.Tag.Envs {
			format = os.Getenv(env) //nolint:forbidigo // kong may not have read it yet
		}
		for i, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--log-format="); ok {
				format = value
			} else if arg == "--log-format" && i+1 < len(args) {
				format = args[i+1]
			}
		}
	}
	return setting.Trim(format)
}
