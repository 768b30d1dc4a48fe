// Package declaration reads the file of berth apply: a routing file that may also have teams and applications, with their API keys and budgets.
package declaration

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"berth"
	"berth/internal/editdistance"
	"berth/internal/llm"
	"berth/internal/schema"
	"berth/internal/yamlfile"
)

//go:embed apply.schema.json
var fileSchemaText []byte

var fileSchema = schema.MustCompile("apply.schema.json", fileSchemaText)

// File is what a file declares.
type File struct {
	Routing *llm.Content // nil without one
	// Teams and Apps are sorted by id.
	Teams []Team
	Apps  []App

	name string
	root *yaml.Node
}

// Team is a team with its budget, nil without one, and its API keys, sorted by title.
type Team struct {
	berth.Team

	Budget *Budget
	Keys   []Key
}

// App is an application with its API keys, sorted by title.
type App struct {
	berth.App

	Keys []Key
}

// Key is an API key of the team or the application that contains it. No other one of these has its title.
type Key struct {
	berth.KeySettings

	ExpiresAt time.Time // zero for never
	Budget    *Budget   // nil without one
	Path      []string  // in the file
}

// Budget is that of a team or a key.
type Budget struct {
	Credits berth.Credits
	Period  berth.BudgetPeriod
}

// Parse reads the text of a file that errors call name. Its error names the path and line of each mistake.
func Parse(name string, src []byte) (*File, error) {
	root, err := yamlfile.Parse(src)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var value any
	if err := root.Decode(&value); err != nil {
		return nil, fmt.Errorf("%s: %w", name, yamlfile.Unreadable(src, err))
	}
	if !utf8.Valid(src) { // the parser reads UTF-16
		return nil, fmt.Errorf("%s is not UTF-8: save the file in this encoding", name)
	}
	r := &reader{File: &File{name: name, root: root}}
	if root.Kind != yaml.MappingNode {
		return nil, r.Mistake(nil, "must have fields such as teams: and models:")
	}
	r.violations(yamlfile.Plain(value))
	r.routing(src)
	var fields struct {
		Teams map[string]levelFields
		Apps  map[string]levelFields
	}
	_ = root.Decode(&fields) // of what violates the schema, as much as can be read
	for _, id := range slices.Sorted(maps.Keys(fields.Teams)) {
		r.team(id, fields.Teams[id])
	}
	for _, id := range slices.Sorted(maps.Keys(fields.Apps)) {
		r.app(id, fields.Apps[id])
	}
	r.members()
	return r.File, r.err()
}

// Mistake returns the error of the value that a path leads to. Where the file does not have it, the line is that of what should contain it.
func (f *File) Mistake(path []string, format string, args ...any) error {
	return f.mistakeAt(yamlfile.Line(f.root, path), path, format, args...)
}

func (f *File) mistakeAt(line int, path []string, format string, args ...any) error {
	at := f.name
	if len(path) > 0 {
		at += ": " + yamlfile.Safe(strings.Join(path, "."))
	}
	return fmt.Errorf("%s (line %d): %s", at, line, yamlfile.Safe(fmt.Sprintf(format, args...)))
}

// reader collects the mistakes of a file.
type reader struct {
	*File

	mistakes []mistake
}

type mistake struct {
	line int
	err  error
}

func (r *reader) mistake(path []string, format string, args ...any) {
	r.add(yamlfile.Line(r.root, path), path, format, args...)
}

// unknown notes a mistake of the name of a field.
func (r *reader) unknown(object []string, name, format string, args ...any) {
	r.add(yamlfile.Key(yamlfile.Find(r.root, object), name).Line, slices.Concat(object, []string{name}), format, args...)
}

func (r *reader) add(line int, path []string, format string, args ...any) {
	r.mistakes = append(r.mistakes, mistake{line, r.mistakeAt(line, path, format, args...)})
}

// err returns the mistakes by line, those of the routing first.
func (r *reader) err() error {
	slices.SortStableFunc(r.mistakes, func(a, b mistake) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, m := range r.mistakes {
		errs = append(errs, m.err)
	}
	return errors.Join(errs...)
}

// violations notes what violates the schema.
func (r *reader) violations(value any) {
	for _, p := range schema.Problems(fileSchema.Validate(value)) {
		switch {
		case len(p.Schema) > 1 && p.Schema[1] == "id":
			r.mistake(p.Path, "%s", idRule)
		case len(p.Unknown) == 0:
			r.mistake(p.Path, "%s", p.Message)
		}
		for _, key := range p.Unknown {
			known := schema.Fields(fileSchema, p.Path)
			said := "unknown field: use one of " + strings.Join(known, ", ")
			if meant := editdistance.Nearest(key, known); meant != "" {
				said = "unknown field: write " + meant
			}
			if len(p.Path) == 1 { // of a team or an application
				said = idRule
			}
			r.unknown(p.Path, key, "%s", said)
		}
	}
}

const idRule = "must be 1 to 128 letters, digits and characters of _.@-"

// routing reads the sections of a routing file, if there are any.
func (r *reader) routing(src []byte) {
	if !slices.ContainsFunc(llm.Sections, func(name string) bool { return yamlfile.Child(r.root, name) != nil }) {
		return
	}
	content, err := llm.ParseSections(r.name, r.root, src)
	if err == nil {
		_, err = llm.NewCatalog(content.Config, llm.Settings{})
	}
	if err != nil {
		r.mistakes = append(r.mistakes, mistake{0, err})
	}
	r.Routing = &content
}

// The fields of the file. What UnmarshalText would refuse is read as a text.
type (
	levelFields struct {
		Team     string
		Title    string
		Weight   float64
		Slots    int
		MaxTasks int `yaml:"maxTasks"`
		Users    []string
		Services []string
		Budget   *budgetFields
		Keys     map[string]keyFields
	}
	keyFields struct {
		Models           []string
		RPM              int
		TPM              int
		MaxCalls         int      `yaml:"maxCalls"`
		ServiceTiers     []string `yaml:"serviceTiers"`
		EndUsers         bool     `yaml:"endUsers"`
		Durability       berth.Durability
		Retention        berth.KeyRetention
		ReplaceResponses bool   `yaml:"replaceResponses"`
		ExpiresAt        string `yaml:"expiresAt"`
		Budget           *budgetFields
	}
	budgetFields struct {
		Credits string
		Period  berth.BudgetPeriod
	}
)

func (r *reader) team(id string, f levelFields) {
	path := []string{"teams", id}
	t := Team{Team: berth.Team{ID: id, LevelSettings: r.settings(path, f), Users: f.Users, Services: f.Services}, Budget: r.budget(path, f.Budget), Keys: r.keys(path, f.Keys)}
	for i, user := range f.Users {
		r.check(slices.Concat(path, []string{"users", fmt.Sprint(i)}), berth.ValidUserID("users", user))
	}
	r.dots(path, f)
	r.Teams = append(r.Teams, t)
}

func (r *reader) app(id string, f levelFields) {
	path := []string{"apps", id}
	a := App{App: berth.App{ID: id, TeamID: f.Team, LevelSettings: r.settings(path, f), Services: f.Services}, Keys: r.keys(path, f.Keys)}
	if f.Team == "" && len(f.Keys) > 0 {
		r.mistake(path, "needs a team, because it has keys")
	}
	r.dots(path, f)
	r.Apps = append(r.Apps, a)
}

// dots refuses the ids that are dots only, which the schema permits.
func (r *reader) dots(path []string, f levelFields) {
	for i, id := range f.Services {
		if strings.Trim(id, ".") == "" {
			r.check(slices.Concat(path, []string{"services", fmt.Sprint(i)}), berth.ValidID("services", cmp.Or(id, ".")))
		}
	}
	if id := path[1]; id == "." || id == ".." {
		r.check(path, berth.ValidID("", id))
	}
}

// check notes an error of the domain.
func (r *reader) check(path []string, err error) {
	if invalid, ok := errors.AsType[*berth.Error](err); ok {
		r.mistake(path, "%s", invalid.Message)
	}
}

func (r *reader) settings(path []string, f levelFields) berth.LevelSettings {
	title, err := berth.Name("title", f.Title, berth.MaxTeamTitle)
	r.check(slices.Concat(path, []string{"title"}), err)
	return berth.LevelSettings{Title: title, Weight: cmp.Or(f.Weight, 1), Slots: f.Slots, MaxTasks: f.MaxTasks}
}

func (r *reader) budget(path []string, f *budgetFields) *Budget {
	if f == nil {
		return nil
	}
	b := &Budget{Period: cmp.Or(f.Period, berth.PeriodMonth)}
	at := slices.Concat(path, []string{"budget", "credits"})
	if n := yamlfile.Find(r.root, at); n.Tag == "!!int" || n.Tag == "!!float" {
		var err error
		if b.Credits, err = berth.ParseCredits(f.Credits); err != nil {
			r.mistake(at, "must be a number with at most three decimals, such as 12.5")
		}
	}
	return b
}

// keys reads the API keys of a team or an application.
func (r *reader) keys(path []string, fields map[string]keyFields) (keys []Key) {
	same := map[string]string{} // titles as they are written, by what is stored
	for _, written := range slices.Sorted(maps.Keys(fields)) {
		f, at := fields[written], slices.Concat(path, []string{"keys", written})
		k := Key{Path: at, KeySettings: berth.KeySettings{
			Models: f.Models, RPM: f.RPM, TPM: f.TPM, MaxCalls: f.MaxCalls, ServiceTiers: f.ServiceTiers, EndUsers: f.EndUsers,
		}}
		title, err := berth.Name("title", written, berth.MaxKeyTitle)
		r.check(at, err)
		if other, ok := same[title]; ok {
			r.mistake(at, "is the title of another key as well, which the file has as %q", other)
		} else if err == nil && title == "" {
			r.mistake(at, "a key needs a title, by which it is found again")
		}
		same[title], k.Title = written, title
		if f.ExpiresAt != "" {
			expires, err := time.Parse(time.RFC3339, f.ExpiresAt)
			if err != nil {
				r.mistake(slices.Concat(at, []string{"expiresAt"}), "must be a time such as 2027-01-02T15:04:05Z or 2027-01-02T15:04:05+01:00")
			}
			k.ExpiresAt = expires.UTC().Truncate(time.Millisecond)
		}
		r.storage(at, &k.KeySettings, f)
		k.Budget = r.budget(at, f.Budget)
		keys = append(keys, k)
	}
	return keys
}

// storage sets the durability and the retention of a key, by their rules for one that has nothing else.
func (r *reader) storage(path []string, k *berth.KeySettings, f keyFields) {
	only := berth.KeySettings{Durability: f.Durability, Retention: f.Retention, ReplaceResponses: f.ReplaceResponses}
	if invalid, ok := errors.AsType[*berth.Error](only.Normalize()); ok && invalid.Field != "durability" { // that violates the schema
		r.mistake(slices.Concat(path, []string{invalid.Field}), "%s", invalid.Message)
	}
	k.Durability, k.Retention, k.ReplaceResponses = only.Durability, only.Retention, only.ReplaceResponses
}

// members notes users and services that belong to more than one team or application.
func (r *reader) members() {
	owner := map[[2]string]string{}
	claim := func(path []string, kind string, names []string) {
		for i, name := range names {
			of := strings.Join(path, ".")
			if other, ok := owner[[2]string{kind, name}]; ok && other != of {
				r.mistake(slices.Concat(path, []string{kind, fmt.Sprint(i)}), "%q belongs to %s as well: it may have one team or application", name, other)
			}
			owner[[2]string{kind, name}] = of
		}
	}
	for _, t := range r.Teams {
		claim([]string{"teams", t.ID}, "users", t.Users)
		claim([]string{"teams", t.ID}, "services", t.Services)
	}
	for _, a := range r.Apps {
		claim([]string{"apps", a.ID}, "services", a.Services)
	}
}
