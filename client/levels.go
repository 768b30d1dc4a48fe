package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Why calls of a model wait, as Why of ModelLevels states it.
const (
	WhyUnknown   = "unknown"
	WhyUnpolled  = "unpolled"
	WhyGrace     = "grace"
	WhyPaused    = "paused"
	WhyUpstreams = "upstreams"
	WhyLimits    = "limits"
	WhyStarting  = "starting"
)

// Why the calls of a level wait, as Why of CallLevel states it; and WhyUpstreams.
const (
	WhyLimit = "limit"
	WhyAbove = "above"
	WhyOrder = "order"
	WhyNext  = "next"
)

// Whether an upstream takes a call, as State of UpstreamState states it.
const (
	UpstreamOpen     = "open"
	UpstreamPaused   = "paused"
	UpstreamProbing  = "probing"
	UpstreamFull     = "full"
	UpstreamProvider = "provider"
	UpstreamPace     = "pace"
)

// ModelLevels is what holds slots of a model and what waits for one, on each level of the order, and why it waits.
type ModelLevels struct {
	Model    string `json:"model"`
	InUse    int    `json:"inUse" doc:"Number of slots in use"`
	Waiting  int    `json:"waiting" doc:"Number of calls that wait for a slot"`
	Starting int    `json:"starting,omitempty" doc:"Number of tasks that are among the next, and whose calls are on their way"`
	Why      string `json:"why,omitempty" enum:"unknown,unpolled,grace,paused,upstreams,limits,starting" doc:"Why no waiting call starts now; absent where none waits. unknown: the routing has no such model; unpolled: no worker polls its task queue; grace: Redis may have lost its data, and grants nothing for some seconds; paused: by an operator; upstreams: none takes a call, see upstreams; limits: what waits is at limits of its own, see levels; starting: an upstream is free, and the next calls are on their way"`
	Reason   string `json:"reason,omitempty" doc:"Reason that the operator has stated for the pause"`
	// Upstreams are in the order in which they are preferred.
	Upstreams []UpstreamState `json:"upstreams" doc:"What serves the model, in the order in which it is preferred"`
	Levels    []CallLevel     `json:"levels" doc:"The queues, those with the most waiting calls first"`
}

// UpstreamState states whether an upstream takes a call now.
type UpstreamState struct {
	Name  string `json:"name"`
	State string `json:"state" enum:"open,paused,probing,full,provider,pace" doc:"full: all of its slots are in use; provider: its provider has no free slot; pace: its limits per minute permit the next call in nextGrantMs; probing: it failed, and its one call at a time is running"`
	InUse int    `json:"inUse"`
	Cap   int    `json:"cap"`
	ModelPause
	NextGrantMs int64 `json:"nextGrantMs,omitempty" doc:"Time until the pace or a provider's pause permits the next call"`
}

// CallLevel is what the calls of a queue, team, application, user or end user hold of a model and wait for.
type CallLevel struct {
	Kind      string      `json:"kind" enum:"queue,team,app,user,key,endUser"`
	ID        string      `json:"id" doc:"Empty for calls of an application's user without an end user"`
	Weight    float64     `json:"weight" doc:"Share of the slots, relative to the neighbours whose calls wait, too"`
	InUse     int         `json:"inUse" doc:"Number of slots of the model in use"`
	Waiting   int         `json:"waiting" doc:"Number of calls that wait for a slot of the model"`
	Limit     int         `json:"limit,omitempty" doc:"Maximum number of slots of all models together; absent for no limit"`
	LimitUsed int         `json:"limitUsed,omitempty" doc:"Number of these in use"`
	Why       string      `json:"why,omitempty" enum:"limit,above,upstreams,order,next" doc:"Why its first call waits; absent where none waits. limit: it uses all slots of its limit; above: a level above does; upstreams: no upstream that may serve the call takes one; order: neighbours are served before; next: it is the next of its neighbours, and waits as the level above does"`
	Ahead     int         `json:"ahead,omitempty" doc:"Number of neighbours that are served before"`
	Upstreams []string    `json:"upstreams,omitempty" doc:"With why upstreams: those that may serve the call, because of its size or because it failed at others"`
	Levels    []CallLevel `json:"levels,omitempty" doc:"Those below with the most waiting calls. The others, and those beyond 400 levels in all, are a part of the numbers of this level only"`
}

// LevelQuery selects a part of ModelLevels. The zero value selects the ten largest levels below each.
type LevelQuery struct {
	TeamID, AppID string // only calls that count for it
	Limit         int    // of the levels below each, 1 to 100
}

// ModelLevels returns what holds slots of a model and what waits for one.
func (c *Client) ModelLevels(ctx context.Context, model string, q LevelQuery) (ModelLevels, error) {
	query := url.Values{}
	for name, value := range map[string]string{"teamId": q.TeamID, "appId": q.AppID} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	return fetch[ModelLevels](ctx, c, http.MethodGet, "/v1/models/"+url.PathEscape(model)+"/levels?"+query.Encode(), nil)
}
