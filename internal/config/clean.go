package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"berth/internal/secret"
	"berth/internal/setting"
)

// Clean returns the option with which a command reads all settings, which are the flags that have an environment variable. Their texts are cleaned as
// package setting describes, whether they come from a flag or from the environment; elements of lists as well. A variable without a text is
// not set. Errors contain no text of a secret or of an address.
func Clean() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		seen := map[*kong.Value]bool{}
		return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
			if f, ok := node.(*kong.Flag); ok && len(f.Tag.Envs) > 0 && !seen[f.Value] {
				seen[f.Value] = true
				f.Mapper = cleaned{f.Mapper}
				for _, env := range f.Tag.Envs {
					if text, ok := os.LookupEnv(env); ok && setting.Trim(text) == "" { //nolint:forbidigo // before kong reads it
						if err := os.Unsetenv(env); err != nil {
							return err
						}
					}
				}
			}
			return next(nil)
		})
	})
}

// cleaned is the mapper of a setting.
type cleaned struct{ kong.Mapper }

var (
	textType    = reflect.TypeFor[secret.Text]()
	addressType = reflect.TypeFor[secret.Address]()
)

// Decode is part of kong.Mapper.
func (m cleaned) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	element := target.Type()
	if element.Kind() == reflect.Slice {
		element = element.Elem()
	}
	kind := setting.Plain
	if element == textType {
		kind = setting.Secret
	}
	token := ctx.Scan.Peek()
	if text, ok := token.Value.(string); ok && (token.Type == kong.FlagValueToken || token.IsValue() && !ctx.Value.IsBool()) {
		text, err := setting.Clean(kind, trimElements(ctx.Value, target.Kind(), text))
		if err != nil {
			return err
		}
		ctx.Scan.Pop()
		ctx.Scan.PushTyped(text, token.Type)
	}
	err := m.Mapper.Decode(ctx, target)
	if err != nil && (element == textType || element == addressType) { // it may contain the text
		return errors.New("the value is missing, or begins with a hyphen; write it after =, without a space")
	}
	return err
}

// trimElements returns a list or map without space around its elements, and without empty ones.
func trimElements(v *kong.Value, kind reflect.Kind, text string) string {
	var separator rune
	switch kind {
	case reflect.Slice:
		separator = v.Tag.Sep
	case reflect.Map:
		separator = v.Tag.MapSep
	default:
		return text
	}
	if separator == -1 { // none
		return text
	}
	var elements []string
	for _, e := range kong.SplitEscaped(text, separator) {
		key, value, pair := strings.Cut(e, "=")
		if e = setting.Trim(e); kind == reflect.Map && pair {
			e = setting.Trim(key) + "=" + setting.Trim(value)
		}
		if e != "" {
			elements = append(elements, e)
		}
	}
	return kong.JoinEscaped(elements, separator)
}

// fromEnv is how kong ends the error of an environment variable: with its text.
var fromEnv = regexp.MustCompile(` \(from envar (\w+)="(?:[^"\\]|\\.)*"\)`)

// unexpected is how kong begins the error of an argument that no command accepts: with the argument.
const unexpected = "unexpected argument "

// Explain returns an error of kong without the texts of environment variables, and without an argument that may be the rest of a value: a
// shell splits a password with a space.
func Explain(err error, args []string) error {
	if err == nil {
		return nil
	}
	text := fromEnv.ReplaceAllString(err.Error(), " (from ${1})")
	if rest, ok := strings.CutPrefix(text, unexpected); ok {
		afterFlag := false
		for i, arg := range args {
			if afterFlag = afterFlag || strings.HasPrefix(arg, "-"); afterFlag && strings.HasPrefix(rest, arg) {
				text = fmt.Sprintf("%snumber %d: a value with spaces needs quotes around it in the shell", unexpected, i+1)
			}
		}
	}
	if text == err.Error() {
		return err
	}
	return explained{err, text}
}

type explained struct {
	error
	text string
}

func (e explained) Error() string { return e.text }

func (e explained) Unwrap() error { return e.error }
