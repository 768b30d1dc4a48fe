// Package templates contains the built-in templates, which are examples for others, and the JSON Schema of their files.
package templates

import "embed"

// FS has the directories of the built-in templates.
//
//go:embed all:career all:documents all:support
var FS embed.FS

// Schema is the JSON Schema of template.yaml, for editors.
//
//go:embed template.schema.json
var Schema []byte
