package lua

import (
	"embed"
	"fmt"
	"regexp"
)

//go:embed include/*.lua
var includes embed.FS

var includeLine = regexp.MustCompile(`(?m)^-- include (\w+)$`)

// withIncludes replaces each line `-- include <name>` by include/<name>.lua: local functions that several scripts share,
// so that a rule such as the order of service is written once. Includes may include others.
func withIncludes(src string) string {
	return includeLine.ReplaceAllStringFunc(src, func(line string) string {
		name := includeLine.FindStringSubmatch(line)[1]
		b, err := includes.ReadFile("include/" + name + ".lua")
		if err != nil {
			panic(fmt.Sprintf("read embedded include %s: %v", name, err)) // the binary itself is broken
		}
		return withIncludes(string(b))
	})
}
