package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"berth/internal/secret"
	"berth/internal/setting"
)

// Setting is a field with an environment variable. Its tags are the only place that states its names, its default and its bounds.
type Setting struct {
	Group, Flag, Env, Help, Default, Min, Max string

	Value reflect.Value
}

// Each calls visit with each setting of a pointer to a struct of settings, in the order of their declaration.
func Each(settings any, visit func(Setting)) { each(reflect.ValueOf(settings).Elem(), "", visit) }

func each(v reflect.Value, group string, visit func(Setting)) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if env := tag.Get("env"); env != "" {
			help := strings.ReplaceAll(tag.Get("help"), "${enum}", strings.ReplaceAll(strings.Trim(tag.Get("enum"), ","), ",", ", "))
			visit(Setting{group, tag.Get("name"), env, help, tag.Get("default"), tag.Get("min"), tag.Get("max"), v.Field(i)})
		} else if _, ok := tag.Lookup("embed"); ok {
			inner := tag.Get("group")
			if inner == "" {
				inner = group
			}
			each(v.Field(i), inner, visit)
		}
	}
}

// isDefault reports whether a setting of a struct has the default of its tag. Both are pointers.
func isDefault(settings, field any) (is bool) {
	Each(settings, func(s Setting) {
		if s.Value.Addr().Interface() == field {
			is = s.Value.String() == s.Default
		}
	})
	return is
}

// problems are the invalid settings of a struct.
type problems struct {
	fields map[any]Setting // by the pointer to the field
	texts  []string
}

func fieldsOf(settings any) map[any]Setting {
	fields := map[any]Setting{}
	Each(settings, func(s Setting) { fields[s.Value.Addr().Interface()] = s })
	return fields
}

// check returns the settings of a pointer to a struct that are not within the bounds of their tags.
func check(settings any) *problems {
	p := &problems{fields: fieldsOf(settings)}
	Each(settings, func(s Setting) {
		field := s.Value.Addr().Interface()
		if !s.Value.CanInt() {
			return
		}
		if low, ok := s.bound(s.Min); ok && s.Value.Int() < low {
			p.bad(field, "must be at least %s, got %v", s.Min, s.Value)
		}
		if high, ok := s.bound(s.Max); ok && s.Value.Int() > high {
			p.bad(field, "must be at most %s, got %v", s.Max, s.Value)
		}
	})
	return p
}

// bound reads a tag in the unit of the setting.
func (s Setting) bound(tag string) (n int64, ok bool) {
	if tag == "" {
		return 0, false
	}
	var err error
	if s.Value.Type() == reflect.TypeFor[time.Duration]() {
		var d time.Duration
		d, err = time.ParseDuration(tag)
		n = int64(d)
	} else {
		n, err = strconv.ParseInt(tag, 10, 64)
	}
	if err != nil {
		n = math.MaxInt64 // a test reads all bounds
	}
	return n, err == nil
}

// bad adds a problem of the setting that a pointer leads to.
func (p *problems) bad(field any, format string, args ...any) {
	s, ok := p.fields[field]
	if !ok {
		panic(fmt.Sprintf("config: no setting is at a %T", field))
	}
	p.add(s, fmt.Sprintf(format, args...))
}

// hostPort adds a problem unless the address is host:port.
func (p *problems) hostPort(addr *string) {
	if err := setting.HostPort(*addr); err != nil {
		p.bad(addr, "invalid address: %s", err)
	}
}

func (p *problems) add(s Setting, text string) {
	p.texts = append(p.texts, fmt.Sprintf("--%s (%s): %s", s.Flag, s.Env, text))
}

// secret adds what is wrong with secrets. Other errors are left to those who use the setting.
func (p *problems) secret(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // of errors.Join
		for _, e := range joined.Unwrap() {
			p.secret(e)
		}
		return
	}
	e, ok := errors.AsType[*secret.Error](err)
	if !ok {
		return
	}
	for _, s := range p.fields {
		if s.Env == e.Setting {
			p.add(s, strings.TrimPrefix(err.Error(), e.Setting+": "))
			return
		}
	}
	p.texts = append(p.texts, err.Error())
}

// err returns a setting.WrongError that lists the problems; nil without any.
func (p *problems) err() error {
	if len(p.texts) == 0 {
		return nil
	}
	return setting.Wrong(errors.New(strings.Join(p.texts, "; ")))
}
