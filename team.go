package berth

import "cmp"

// Group has the levels at which a user's calls wait together with those of others; each may be empty. It is fixed when a task is accepted.
type Group struct {
	Team    string `json:"teamId,omitempty" doc:"Team that the request counts for"`
	App     string `json:"appId,omitempty" doc:"Application that the request counts for"`
	EndUser string `json:"endUser,omitempty" doc:"User of the application"` // of the application
}

// The limits of teams and applications.
const (
	MinWeight      = 0.01
	MaxWeight      = 1000
	MaxLevelSlots  = 1_000_000
	MaxLevelTasks  = 100_000_000
	MaxTeamTitle   = 100   // characters
	MaxTeamMembers = 1_000 // users of a team, and services of a team or an application; larger teams are named by tokens
)

// LevelSettings are the operator's settings of a team or an application.
type LevelSettings struct {
	Title string `json:"title,omitempty"`
	// Weight is the share among the neighbours that wait for a slot, too: other teams, applications and users without one.
	Weight float64 `json:"weight"`
	// Slots is the maximum number of concurrent calls, of all models together; 0 for no limit.
	Slots int `json:"slots,omitempty"`
	// MaxTasks is the maximum number of unfinished tasks; 0 for no limit.
	MaxTasks int `json:"maxTasks,omitempty"`
}

// DefaultLevel returns the settings of a team that operators have not defined.
func DefaultLevel() LevelSettings { return LevelSettings{Weight: 1} }

// Normalize sets the defaults. It returns CodeInvalid for the first invalid field.
func (l *LevelSettings) Normalize() (err error) {
	l.Weight = cmp.Or(l.Weight, 1)
	if l.Title, err = Name("title", l.Title, MaxTeamTitle); err != nil {
		return err
	}
	switch {
	case l.Weight < MinWeight || l.Weight > MaxWeight:
		return Invalid("weight", "must be a number from %v to %v", MinWeight, MaxWeight)
	case l.Slots < 0 || l.Slots > MaxLevelSlots:
		return Invalid("slots", "must be a number from 0, for no limit, to %d", MaxLevelSlots)
	case l.MaxTasks < 0 || l.MaxTasks > MaxLevelTasks:
		return Invalid("maxTasks", "must be a number from 0, for no limit, to %d", MaxLevelTasks)
	}
	return nil
}

// Team is a group of users whose calls have one share of every model.
type Team struct {
	ID string
	LevelSettings
	// Users and Services are members, unless the token of a request names another team.
	Users, Services []string
}

// Normalize checks the settings and the members. It returns CodeInvalid for the first invalid field.
func (t *Team) Normalize() error {
	return cmp.Or(ValidID("teamId", t.ID), t.LevelSettings.Normalize(), validMembers("users", t.Users, ValidUserID), validMembers("services", t.Services, ValidID))
}

// App is an application: its calls have one share, of that of its team if it has one, which its users divide, and of each of these its
// end users.
type App struct {
	ID     string
	TeamID string // empty for none
	LevelSettings
	Services []string // whose requests belong to it, unless the token names another application
}

// Normalize checks the settings and the services. It returns CodeInvalid for the first invalid field.
func (a *App) Normalize() error {
	if a.TeamID != "" {
		if err := ValidID("teamId", a.TeamID); err != nil {
			return err
		}
	}
	return cmp.Or(ValidID("appId", a.ID), a.LevelSettings.Normalize(), validMembers("services", a.Services, ValidID))
}

func validMembers(field string, ids []string, valid func(field, id string) error) error {
	if len(ids) > MaxTeamMembers {
		return Invalid(field, "must have at most %d entries; of larger teams the tokens name the team", MaxTeamMembers)
	}
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if err := valid(field, id); err != nil {
			return err
		}
		if seen[id] {
			return Invalid(field, "must not have %q twice", id)
		}
		seen[id] = true
	}
	return nil
}
