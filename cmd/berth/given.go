package main

import (
	"slices"

	"github.com/alecthomas/kong"

	"berth"
)

// given has the names of the flags that the command line gives: a command that changes something keeps the rest of it.
type given map[string]bool

func givenTo(command *kong.Context) given {
	g := given{}
	for _, p := range command.Path {
		if p.Flag != nil {
			g[p.Flag.Name] = true
		}
	}
	return g
}

// change sets a field to the value of a flag that is given.
func change[T any](g given, flag string, field *T, value T) {
	if g[flag] {
		*field = value
	}
}

// changeList is change for a list, which an empty text empties.
func changeList[T ~string](g given, flag string, field *[]T, value []T) {
	change(g, flag, field, slices.DeleteFunc(slices.Clone(value), func(v T) bool { return v == "" }))
}

// found returns the zero value for what the server does not have.
func found[T any](v T, err error) (T, error) {
	if problemCode(err) == berth.CodeNotFound {
		return *new(T), nil
	}
	return v, err
}
