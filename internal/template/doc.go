// Package template reads templates: what a task needs, which models it asks with which prompts, and what it returns. docs/templates.md
// describes their files.
//
// A Template is immutable and safe for concurrent use. Its Version is a hash of all files that it consists of, shared ones included, without
// line ends and byte order marks. Load makes it from exactly these files, by name: the form in which a version is stored and sent. LoadTree
// finds the templates of a directory tree, whose shared files may be above them; Files returns what Load needs.
//
// A task needs of its template only a Plan, which is small, and the version that its steps render later.
package template
