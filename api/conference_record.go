package api

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/workflows"
)

// csvType is the media type of comma-separated values (RFC 4180).
const csvType = "text/csv"

type recordInput struct {
	E164         string `path:"e164" doc:"The number without the plus"`
	ConferenceID string `query:"conferenceId" maxLength:"128" doc:"An earlier conference of the number; default: the last"`
	Accept       string `header:"Accept" doc:"With application/x-ndjson or text/csv the response has all legs, one per line, instead of the record"`
}

// recordView is the detail record of a conference.
type recordView struct {
	berth.ConferenceRecord
	Delivery *berth.RecordDelivery `json:"delivery,omitempty" doc:"The last delivery by webhook; absent where it was not sent"`
}

type sendRecordInput struct {
	E164         string `path:"e164" doc:"The number without the plus"`
	ConferenceID string `query:"conferenceId" maxLength:"128" doc:"An earlier conference of the number; default: the last"`
}

func (s *server) conferenceRecordRoute() {
	ok := response("The record, or its legs in the accepted form", echo.MIMEApplicationJSON, s.schemaOf(recordView{}))
	ok.Content[ndjson] = &huma.MediaType{Schema: s.schemaOf(berth.ConferenceLeg{})}
	ok.Content[csvType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	registerOutput(s, "GET /v1/conferences/{e164}/record", forExports, s.conferenceRecord,
		withResponses(map[string]*huma.Response{"200": ok, "default": s.problemResponse()}, op("conference-record", "conferences",
			"Get the detail record of an ended conference, with a segment per unit and the legs of its participants",
			"404 until the conference has ended. A leg that its unit could not end has the end and the reason of the unit's segment.")))
	register(s, "POST /v1/conferences/{e164}/record/send", forOperator, s.sendRecord, withStatus(202, op("send-conference-record", "conferences",
		"Send the detail record of an ended conference by webhook again",
		"With the same webhook id. The outcome is `delivery` in the record. 409 `conflict`: no URL is set for records; 404: the conference has not ended.")))
}

func (s *server) conferenceRecord(ctx context.Context, in *recordInput) (*exportOutput, error) {
	c, err := s.endedConference(ctx, in.E164, in.ConferenceID)
	if err != nil {
		return nil, err
	}
	legs := func(cursor string) ([]berth.ConferenceLeg, string, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return s.Ledger.RecordLegs(ctx, c, cursor)
	}
	page, next, err := legs("")
	if err != nil {
		return nil, err
	}
	switch acceptedType(in.Accept, ndjson, csvType) {
	case ndjson:
		return export(ctx, s, ndjson, page, next, legs, writeNDJSON), nil
	case csvType:
		return export(ctx, s, csvType, page, next, legs, writeCSV), nil
	}
	delivery, err := s.delivery(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	record := berth.ConferenceRecord{Conference: whole(c), Legs: append([]berth.ConferenceLeg{}, page...), LegsLeft: next != ""}
	return s.object(ctx, recordView{record, delivery}), nil
}

// endedConference returns a conference that the caller may see and that has ended.
func (s *server) endedConference(ctx context.Context, e164, id string) (berth.Conference, error) {
	c, err := s.ownConference(ctx, e164, id)
	if err == nil && !c.Status.Final() {
		err = berth.Errorf(berth.CodeNotFound, "the conference has not ended; its record does not exist yet")
	}
	return c, err
}

// delivery returns the last delivery of a record; nil where there was none.
func (s *server) delivery(ctx context.Context, conferenceID string) (*berth.RecordDelivery, error) {
	d, ok, err := berth.Found(s.Ledger.FindDelivery(ctx, conferenceID))
	if !ok {
		return nil, err
	}
	return &d, nil
}

func (s *server) sendRecord(ctx context.Context, in *sendRecordInput) (*berth.RecordDelivery, error) {
	c, err := s.endedConference(ctx, in.E164, in.ConferenceID)
	if err != nil {
		return nil, err
	}
	if s.Config.RecordWithin == 0 {
		return nil, berth.Errorf(berth.CodeConflict, "no URL is set for detail records: set BERTH_RECORD_URL")
	}
	former, err := s.delivery(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	d := berth.RecordDelivery{WebhookID: berth.RecordWebhookID(c.ID), State: berth.DeliveryPending, UpdatedAt: s.Clock()}
	if err := s.Ledger.SaveDelivery(ctx, c.ID, d); err != nil {
		return nil, err
	}
	if err := s.Starter.SendRecord(ctx, workflows.RecordInput{ConferenceID: c.ID, Within: s.Config.RecordWithin}, true); err != nil {
		if former != nil { // it is not sent, unless the reply was lost: then its outcome follows
			err = errors.Join(err, s.Ledger.SaveDelivery(ctx, c.ID, *former))
		}
		return nil, err
	}
	s.log.InfoContext(ctx, "detail record sent again on request", "conference", c.ID, "by", callOf(ctx).user.UserID)
	return &d, nil
}

// writeCSV writes a header before the first legs. Texts that a spreadsheet would run as formulas are quoted.
func writeCSV(w io.Writer) func([]berth.ConferenceLeg) error {
	out, header := csv.NewWriter(w), []string{"id", "identity", "name", "nodeId", "epoch", "joinedAt", "leftAt", "reason"}
	return func(legs []berth.ConferenceLeg) error {
		rows := [][]string{}
		if header != nil {
			rows, header = append(rows, header), nil
		}
		for _, leg := range legs {
			rows = append(rows, []string{
				cell(leg.ID), cell(leg.Identity), cell(leg.Name), cell(leg.NodeID), strconv.FormatInt(leg.Epoch, 10),
				leg.JoinedAt.Format(time.RFC3339Nano), leg.LeftAt.Format(time.RFC3339Nano), string(leg.Reason),
			})
		}
		return out.WriteAll(rows)
	}
}

// cell returns text from outside that no spreadsheet treats as a formula: with an apostrophe before a character that begins one.
func cell(text string) string {
	if first, _ := utf8.DecodeRuneInString(text); text != "" && strings.ContainsRune("=+-@\t\r＝＋－＠", first) {
		return "'" + text
	}
	return text
}
