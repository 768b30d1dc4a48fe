package lua

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed include/*.lua
var includes embed.FS

// withIncludes replaces each line `-- include <name>` by include/<name>.lua, without its comments: what several scripts share, so that a
// rule such as the order of service is written once. Most includes define local functions; some are a part of the script. Includes may
// include others.
func withIncludes(src string) string {
	var out strings.Builder
	for line := range strings.Lines(src) {
		name, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- include ")
		if !found || strings.Contains(name, " ") {
			out.WriteString(line)
			continue
		}
		b, err := includes.ReadFile("include/" + name + ".lua")
		if err != nil {
			panic(fmt.Sprintf("read embedded include %s: %v", name, err)) // the binary itself is broken
		}
		for line := range strings.Lines(withIncludes(string(b))) {
			if !strings.HasPrefix(strings.TrimSpace(line), "--") {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}
