package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"berth"
	"berth/client"
	"berth/internal/ledger"
	"berth/lua"
	"berth/workflows"
)

type infoInput struct {
	E164 string `path:"e164" doc:"The number without the plus"`
	Body infoBody
}

func (in *infoInput) node() (field, id string) { return "nodeId", in.Body.NodeID }

type readInfoInput struct {
	E164       string `path:"e164" doc:"The number without the plus"`
	NodeID     string `query:"nodeId" required:"true" maxLength:"128" doc:"The unit"`
	Generation int64  `query:"generation" required:"true" minimum:"1" maximum:"9007199254740991"`
	Epoch      int64  `query:"epoch" required:"true" minimum:"1" maximum:"9007199254740991" doc:"Epoch of the unit's copy"`
}

func (in *readInfoInput) node() (field, id string) { return "nodeId", in.NodeID }

// infoBody has the fields of berth.ConferenceInfo.
type infoBody struct {
	NodeID     string          `json:"nodeId" doc:"The reporting unit"`
	Generation int64           `json:"generation" minimum:"1" maximum:"9007199254740991"`
	Epoch      int64           `json:"epoch" minimum:"1" maximum:"9007199254740991" doc:"Epoch of the unit's copy"`
	Full       bool            `json:"full,omitempty" doc:"Replaces earlier information; otherwise the top-level fields are merged into it"`
	Live       json.RawMessage `json:"live,omitempty" doc:"A JSON object, at most 256 KiB; null fields are removed"`
	Ended      bool            `json:"ended,omitempty" doc:"The conference was ended on the unit on purpose, without a command"`

	Legs []berth.ConferenceLeg `json:"legs,omitempty" maxItems:"200" doc:"Participants that have joined or left since the last accepted report, for the detail record"`
}

type infoOutputBody struct {
	E164  string `json:"e164"`
	Epoch int64  `json:"epoch"`
}

type reportOutputBody struct {
	Units       int `json:"units" doc:"Number of units that will report"`
	Conferences int `json:"conferences" doc:"Number of conferences they own"`
	Lost        int `json:"lost" doc:"Number of units that own conferences and are not registered: their conferences are being recovered"`
}

type conferenceStatsOutputBody struct {
	Stale    map[string]int64 `json:"stale" doc:"How often information was rejected because its unit was not the owner, by unit"`
	Licences int              `json:"licences" doc:"Number of licences in use"`
}

// conferenceInfoRoutes registers the routes by which units report on their conferences.
func (s *server) conferenceInfoRoutes() {
	register(s, "POST /v1/conferences/{e164}/info", forNode, s.putConferenceInfo, op("put-conference-info", "conferences",
		"Report information about a conference",
		"Accepted from the owner only: 409 `conflict` when the unit, its generation or the epoch is not the current "+
			"owner's; 404 when the conference is unknown."))
	register(s, "GET /v1/conferences/{e164}/info", forNode, s.getConferenceInfo, op("get-conference-info", "conferences",
		"Get information about a conference, for its owner",
		"`live.former` has the participants of the former owner, `live.formerRoomMetadata` the metadata of its room. 409 `conflict` when the unit, its generation or the epoch is not the "+
			"current owner's; 404 when the conference is unknown."))
	register(s, "POST /v1/conferences/report", forOperator, s.reportConferences, withStatus(http.StatusAccepted, op("report-conferences", "conferences",
		"Request a full report from every unit",
		"Use it when information was lost. Returns once the requests to the units are durable.")))
	register(s, "GET /v1/stats/conferences", forOperator, s.conferenceStats, op("conference-stats", "conferences",
		"Get rejected reports by unit and the number of licences in use"))
}

func (s *server) putConferenceInfo(ctx context.Context, in *infoInput) (*infoOutputBody, error) {
	info, err := newInfo(in)
	if err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	code, err := s.Scripts.PutConferenceInfo(ctx, in.E164, info)
	if err != nil {
		return nil, fromRedis(err)
	}
	switch code {
	case lua.InfoUnknown:
		return nil, errNoConference
	case lua.InfoTooLarge:
		return nil, tooMuchInfo()
	case lua.ConferenceStale:
		s.logStale(ctx, in.E164, info)
		return nil, errNotOwner
	}
	if len(info.Legs) > 0 {
		if err := s.saveLegs(ctx, in.E164, info); err != nil {
			return nil, err
		}
	}
	if info.Ended {
		if err := s.endedByUnit(ctx, in.E164, info); err != nil {
			return nil, err
		}
	}
	return &infoOutputBody{E164: in.E164, Epoch: info.Epoch}, nil
}

func (s *server) getConferenceInfo(ctx context.Context, in *readInfoInput) (*client.ConferenceInfo, error) {
	if err := cmp.Or(berth.ValidE164("e164", in.E164), berth.ValidID("nodeId", in.NodeID)); err != nil {
		return nil, err
	}
	row, ok, err := s.Scripts.ConferenceRow(ctx, in.E164)
	switch {
	case err != nil:
		return nil, fromRedis(err)
	case !ok:
		return nil, errNoConference
	case row.NodeID != in.NodeID || row.Generation != in.Generation || row.Epoch != in.Epoch:
		return nil, errNotOwner
	}
	info := &client.ConferenceInfo{}
	info.Basic, info.Live, _, err = s.Scripts.ConferenceInfo(ctx, in.E164)
	return info, fromRedis(err)
}

func newInfo(in *infoInput) (berth.ConferenceInfo, error) {
	b := in.Body
	info := berth.ConferenceInfo{NodeID: b.NodeID, Generation: b.Generation, Epoch: b.Epoch, Full: b.Full, Ended: b.Ended}
	if err := cmp.Or(berth.ValidE164("e164", in.E164), berth.ValidID("nodeId", b.NodeID)); err != nil {
		return info, err
	}
	for i, leg := range b.Legs {
		if len(leg.ID) > maxLegField || len(leg.Identity) > maxLegField || len(leg.Name) > maxLegField || leg.ID == "" || leg.JoinedAt.IsZero() {
			return info, berth.Invalid(fmt.Sprintf("legs[%d]", i), "must have an id and joinedAt, and texts of at most %d bytes", maxLegField)
		}
	}
	if info.Legs = b.Legs; b.Ended {
		return info, nil
	}
	if len(b.Live) > berth.MaxConferenceInfo {
		return info, tooMuchInfo()
	}
	var live bytes.Buffer
	if err := json.Compact(&live, b.Live); err != nil || live.Len() == 0 || live.Bytes()[0] != '{' {
		return info, berth.Invalid("live", "must be a JSON object").With(err)
	}
	info.Live = live.Bytes()
	return info, nil
}

// maxLegField limits the texts of a leg, in bytes: a name of berth's, or what its participant has changed it to.
const maxLegField = max(1024, 4*berth.MaxParticipantName)

// saveLegs stores legs that the owner of a conference has reported.
func (s *server) saveLegs(ctx context.Context, e164 string, info berth.ConferenceInfo) error {
	row, ok, err := s.Scripts.ConferenceRow(ctx, e164)
	switch {
	case err != nil:
		return fromRedis(err)
	case !ok || row.Epoch != info.Epoch:
		return errNotOwner
	}
	return s.Ledger.SaveLegs(ctx, row.ConferenceID, berth.ConferenceOwner{NodeID: info.NodeID, Epoch: info.Epoch}, info.Legs)
}

// endedByUnit notifies the conference that its owner has ended it. Idempotent.
func (s *server) endedByUnit(ctx context.Context, e164 string, info berth.ConferenceInfo) error {
	found, _, err := s.Ledger.SearchConferences(ctx, ledger.ConferenceQuery{E164: e164}, "", 1)
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Owner.NodeID != info.NodeID || found[0].Owner.Epoch != info.Epoch {
		return berth.Errorf(berth.CodeUnavailable, "the conference is changing its owner; retry")
	}
	if _, err := s.Starter.SignalConference(ctx, e164, workflows.SignalUnit, workflows.UnitNotice{
		NodeID: info.NodeID, Generation: info.Generation, Incarnation: found[0].Owner.Incarnation, Missing: true, Epoch: info.Epoch,
	}); err != nil {
		return fmt.Errorf("notify conference %s of its end: %w", e164, err)
	}
	s.log.InfoContext(ctx, "conference ended by its unit", "e164", e164, "unit", info.NodeID, "epoch", info.Epoch)
	return nil
}

func tooMuchInfo() error {
	return errorIn("live", berth.CodeTooLarge, "exceeds the limit of %s in total", sizeText(berth.MaxConferenceInfo))
}

// logStale logs a rejected report with the current owner; the script has counted it.
func (s *server) logStale(ctx context.Context, e164 string, info berth.ConferenceInfo) {
	owner, _, err := s.Scripts.ConferenceRow(ctx, e164)
	if err != nil {
		s.log.DebugContext(ctx, "conference owner not read", "e164", e164, "error", err)
	}
	s.log.WarnContext(ctx, "report rejected: unit is not the owner", "e164", e164,
		"unit", info.NodeID, "generation", info.Generation, "epoch", info.Epoch,
		"owner", owner.NodeID, "ownerGeneration", owner.Generation, "ownerEpoch", owner.Epoch)
}

// readInfo returns the data proxy's information about a conference, but not that of another conference of the number.
// stale reports that Redis is unavailable.
func (s *server) readInfo(ctx context.Context, c berth.Conference) (info *client.ConferenceInfo, stale bool, err error) {
	row, ok, err := s.Scripts.ConferenceRow(ctx, c.E164)
	if err == nil && ok && row.ConferenceID == c.ID {
		info = &client.ConferenceInfo{}
		info.Basic, info.Live, ok, err = s.Scripts.ConferenceInfo(ctx, c.E164)
		if !ok {
			info = nil
		}
	}
	if unreachable(err) {
		return nil, true, nil
	}
	return info, false, err
}

// reportConferences requests reports from all registered units that own conferences, in batches.
func (s *server) reportConferences(ctx context.Context, _ *struct{}) (*reportOutputBody, error) {
	owners, err := s.Ledger.CountOwners(ctx)
	if err != nil {
		return nil, err
	}
	out := &reportOutputBody{}
	var units []berth.NodeRef
	nodes := s.Fleet.Snapshot().Nodes
	for _, id := range slices.Sorted(maps.Keys(owners)) {
		if n, ok := nodes[id]; !ok || n.State == berth.NodeDead {
			out.Lost++
			continue
		}
		out.Conferences += owners[id]
		units = append(units, berth.NodeRef{NodeID: id, Generation: nodes[id].Generation})
	}
	out.Units = len(units)
	for round := range slices.Chunk(units, workflows.MaxReportUnits) {
		if err := s.Starter.ReportUnits(ctx, round); err != nil {
			return nil, fmt.Errorf("request reports of %d units: %w", len(round), err)
		}
	}
	return out, nil
}

func (s *server) conferenceStats(ctx context.Context, _ *struct{}) (*conferenceStatsOutputBody, error) {
	stale, err := s.Scripts.StaleInfo(ctx)
	if err != nil {
		return nil, fromRedis(err)
	}
	used, _, err := s.Scripts.Licences(ctx, "")
	return &conferenceStatsOutputBody{Stale: stale, Licences: used}, fromRedis(err)
}
