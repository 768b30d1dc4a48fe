package api

import (
	"context"
	"slices"

	"berth"
	"berth/client"
	"berth/internal/llm"
	"berth/lua"
)

type levelsInput struct {
	Name   string `path:"name" doc:"Name of the model"`
	TeamID string `query:"teamId" maxLength:"128" doc:"Only levels of this team"`
	AppID  string `query:"appId" maxLength:"128" doc:"Only levels of this application, which has to exist"`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"10" doc:"Levels below each other one"`
}

// getLevels reads what holds slots of a model and what waits for one, and why.
func (s *server) getLevels(ctx context.Context, in *levelsInput) (*client.ModelLevels, error) {
	models, name := s.neededModels(), in.Name
	if m, ok := s.catalog().Model(name); ok { // it may be an alias
		name = m.Name
	}
	at := slices.IndexFunc(models, func(m llm.Model) bool { return m.Name == name })
	if at < 0 {
		return nil, berth.Errorf(berth.CodeNotFound, "model %q not found in the routing file, and no task needs it", in.Name)
	}
	m, of := models[at], lua.Level{Team: in.TeamID, App: in.AppID}
	if in.AppID != "" {
		app, err := s.Ledger.App(ctx, in.AppID)
		if err != nil {
			return nil, err
		}
		if in.TeamID != "" && in.TeamID != app.TeamID {
			return nil, berth.Invalid("appId", "names an application of another team")
		}
		of.Team = app.TeamID
	}
	services, err := s.modelServices(ctx, []llm.Model{m})
	if err != nil {
		return nil, err
	}
	limits := s.Routing.Current().LimitsOf(m.Name, 0)
	room, err := s.Scripts.ReadRoom(ctx, m.Name, limits, 0)
	if err != nil {
		return nil, fromRedis(err)
	}
	tree, err := s.Scripts.ReadTree(ctx, m.Name, limits, in.Limit, of)
	if err != nil {
		return nil, fromRedis(err)
	}
	return viewLevels(m, room, tree, limits, services[m.Name]), nil
}

// viewLevels states why what waits does so.
func viewLevels(m llm.Model, room lua.Room, tree lua.Tree, limits lua.ModelLimits, service client.ModelService) *client.ModelLevels {
	out := &client.ModelLevels{
		Model: m.Name, InUse: room.InUse, Waiting: room.Waiting, Starting: tree.Starting, Upstreams: []client.UpstreamState{}, Levels: []client.CallLevel{},
	}
	open := map[string]bool{}
	for _, u := range room.Upstreams {
		if room.Paused {
			u.Stopped = 0 // that of the model
		}
		state := upstreamState(u, slices.Contains(tree.Full, u.Name))
		open[u.Name] = state.State == client.UpstreamOpen
		out.Upstreams = append(out.Upstreams, state)
	}
	below := levelsBelow(tree, limits, open, -1, false)
	out.Levels = append(out.Levels, below...)
	if out.Waiting+out.Starting > 0 || service.Unpolled { // the calls that wait are not known while no worker has them
		out.Why = whyModel(room, tree, open, service)
	}
	if out.Why == client.WhyPaused {
		out.Reason = pauseOf(room).Reason
	}
	return out
}

// whyModel returns why no waiting call of a model starts now: what an operator has to change first is first.
func whyModel(room lua.Room, tree lua.Tree, open map[string]bool, service client.ModelService) string {
	var anyOpen bool
	for _, is := range open {
		anyOpen = anyOpen || is
	}
	inOrder := slices.ContainsFunc(tree.Nodes, func(n lua.TreeNode) bool { return n.Parent < 0 && n.Ahead >= 0 })
	switch {
	case service.Missing == client.ModelUnknown:
		return client.WhyUnknown
	case service.Unpolled:
		return client.WhyUnpolled
	case tree.Grace != 0:
		return client.WhyGrace
	case room.Paused, len(room.Upstreams) > 0 && !slices.ContainsFunc(room.Upstreams, func(u lua.UpstreamUse) bool { return !u.Paused }):
		return client.WhyPaused
	case !anyOpen:
		return client.WhyUpstreams
	case room.Waiting > 0 && !inOrder:
		return client.WhyLimits
	default:
		return client.WhyStarting
	}
}

func upstreamState(u lua.UpstreamUse, providerFull bool) client.UpstreamState {
	v := client.UpstreamState{Name: u.Name, State: client.UpstreamOpen, InUse: u.InUse, Cap: u.Cap, ModelPause: pauseOfUpstream(u)}
	if !u.Paused {
		v.NextGrantMs = ms(u.Stopped)
	}
	switch {
	case v.Paused:
		v.State = client.UpstreamPaused
	case u.Probing && u.InUse > 0:
		v.State = client.UpstreamProbing
	case u.InUse >= u.Cap:
		v.State = client.UpstreamFull
	case providerFull:
		v.State = client.UpstreamProvider
	case u.Stopped > 0:
		v.State = client.UpstreamPace
	}
	return v
}

// levelsBelow returns the levels below one of the tree. above: it, or one above it, is at its limit.
func levelsBelow(tree lua.Tree, limits lua.ModelLimits, open map[string]bool, parent int, above bool) (levels []client.CallLevel) {
	for i, n := range tree.Nodes {
		if n.Parent != parent {
			continue
		}
		v := client.CallLevel{
			Kind: n.Kind, ID: n.ID, Weight: n.Weight, InUse: n.InUse, Waiting: n.Waiting, Limit: n.Limit, LimitUsed: n.Used,
		}
		full := n.Limit > 0 && n.Used >= n.Limit
		if n.Waiting > 0 {
			v.Why = whyLevel(n, full, above)
			if v.Why == client.WhyOrder {
				v.Ahead = n.Ahead
			}
			if usable := usableBy(n.Needs, limits); v.Why == client.WhyNext && len(usable) < len(limits.Upstreams) &&
				!slices.ContainsFunc(usable, func(u string) bool { return open[u] }) {
				v.Why, v.Upstreams = client.WhyUpstreams, usable
			}
		}
		v.Levels = levelsBelow(tree, limits, open, i, above || full)
		levels = append(levels, v)
	}
	return levels
}

func whyLevel(n lua.TreeNode, full, above bool) string {
	switch {
	case full:
		return client.WhyLimit
	case above:
		return client.WhyAbove
	case n.Ahead > 0:
		return client.WhyOrder
	default:
		return client.WhyNext
	}
}

// usableBy returns the upstreams that may serve a call, as include upstream decides while others than the excluded ones work.
func usableBy(n lua.Needs, limits lua.ModelLimits) (names []string) {
	fits := func(u lua.UpstreamLimits) bool { return u.Context == 0 || n.Tokens <= u.Context }
	anyFits := slices.ContainsFunc(limits.Upstreams, fits)
	for _, u := range limits.Upstreams {
		if (!anyFits || fits(u)) && !slices.Contains(n.Excluded, u.Name) {
			names = append(names, u.Name)
		}
	}
	return names
}
