package lua

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed include/*.lua
var includes embed.FS

// withIncludes replaces each line `-- include <name>` by include/<name>.lua: local functions that several scripts share,
// so that a rule such as the order of service is written once. Includes may include others.
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
		out.WriteString(withIncludes(string(b)) + "\n")
	}
	return out.String()
}
