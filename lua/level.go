package lua

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"berth"
)

// Level is a team or an application. With both it is an application in its team.
type Level struct{ Team, App string }

// name is the name of the level without its team: limits of applications are the same in every team.
func (l Level) name() string {
	if l.App != "" {
		return "app:" + berth.EscapeID(l.App)
	}
	return "team:" + berth.EscapeID(l.Team)
}

// path is that of the level below a queue.
func (l Level) path() string {
	if l.App != "" && l.Team != "" {
		return Level{Team: l.Team}.name() + "|" + l.name()
	}
	return l.name()
}

// LevelLimits are the weight of a level among its neighbours, and its maximum number of slots of all models together, 0 for none.
type LevelLimits struct {
	Weight float64
	Slots  int
}

// SetLevel sets the weight of a team or an application among its neighbours, and its maximum number of slots of all models together, 0
// for none. They apply to the next decision of any process; a lower limit revokes nothing.
func (s *Scripts) SetLevel(ctx context.Context, l Level, weight float64, slots int) error {
	_, err := s.code(ctx, "set_level", []string{s.keys.Levels()}, l.name(), strconv.FormatFloat(weight, 'f', -1, 64), slots)
	return err
}

// parseLevels returns the levels that have other limits than the default.
func parseLevels(stored map[string]string) map[Level]LevelLimits {
	levels := make(map[Level]LevelLimits, len(stored))
	for name, value := range stored {
		var l Level
		kind, escaped, _ := strings.Cut(name, ":")
		id, err := url.PathUnescape(escaped)
		switch {
		case err != nil:
			continue
		case kind == "team":
			l.Team = id
		case kind == "app":
			l.App = id
		default:
			continue
		}
		weight, slots, _ := strings.Cut(value, " ")
		limits := LevelLimits{}
		limits.Weight, _ = strconv.ParseFloat(weight, 64) // an unreadable one equals no setting
		limits.Slots, _ = strconv.Atoi(slots)
		levels[l] = limits
	}
	return levels
}

// LevelUse is what the calls of a level use of a model in a queue.
type LevelUse struct {
	Level          Level
	Queue          berth.Queue
	InUse, Waiting int
}

// MaxLevels is how many levels ReadLevels reads at most.
const MaxLevels = 1_000

// ReadLevels reads what the calls of levels use of a model, where there are any, in no order. limits apply where operators have set none.
func (s *Scripts) ReadLevels(ctx context.Context, model string, limits ModelLimits, levels []Level) (uses []LevelUse, err error) {
	args := []any{s.keys.prefix(), model, limits.arg()}
	for _, l := range levels {
		args = append(args, l.path())
	}
	r := s.call(ctx, "read_levels", []string{s.keys.Guard()}, args...)
	r.code(GuardOK)
	r.list(func() {
		r.list(func() {
			at, u := int(r.number())-1, LevelUse{Queue: berth.Queue(r.text()), InUse: int(r.number()), Waiting: int(r.number())}
			if at < 0 || at >= len(levels) {
				r.fail()
				return
			}
			u.Level = levels[at]
			uses = append(uses, u)
		})
	})
	return uses, r.done()
}
