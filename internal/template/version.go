package template

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// hash returns the version of a template with these files.
func hash(files map[string]string) string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(sum, "%d %s %d %s", len(name), name, len(files[name]), files[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}
