package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// Wire names of conferences and links.
const (
	// ConferenceWorkflow is the workflow type of a conference.
	ConferenceWorkflow = "Conference"
	// TaskQueueConferences is the task queue of conference workflows.
	TaskQueueConferences = "conferences"
	// UpdateCreate answers once the conference is open, or was refused (C16). Its id is the request hash.
	UpdateCreate = "create"
	// UpdateRelease ends the conference, whatever it is doing, and answers once it has ended (C10, C17).
	UpdateRelease = "release"
	// QueryConference answers a berth.Conference.
	QueryConference = "conference"
	// SignalUnit tells what became of a unit or what its list says: UnitNews.
	SignalUnit = "unit"
	// SignalRoom tells that there may be room: who waits tries now (C2).
	SignalRoom = "room"

	// LinkWorkflow is the workflow type that looks after one unit: what was lost with it, and what it brings (C15).
	LinkWorkflow = "Link"
	// SignalNotice tells a link workflow of a berth.NodeNotice.
	SignalNotice = "notice"
)

// ConferenceWorkflowID is the workflow id of the conference that has a number.
func ConferenceWorkflowID(e164 string) string { return "conference:" + e164 }

// LinkWorkflowID is the workflow id of a unit's link.
func LinkWorkflowID(nodeID string, generation int64) string {
	return "link:" + berth.NodeTaskQueue(nodeID, generation)[len("node."):]
}

// ConferenceInput starts a conference.
type ConferenceInput struct {
	ConferenceID string               `json:"conferenceId"`
	UserID       string               `json:"userId"`
	Spec         berth.ConferenceSpec `json:"spec"`
	RequestHash  string               `json:"requestHash"`
	Rules        ConferenceRules      `json:"rules"`
}

// ConferenceRules are the times of recovery (C9).
type ConferenceRules struct {
	Retry   time.Duration `json:"retry"`   // between attempts that nobody asked for; 5 min
	GiveUp  time.Duration `json:"giveUp"`  // from the first refusal of a recovery; 30 min
	Command time.Duration `json:"command"` // how long a unit may take to acknowledge; 10 s
}

// CreateRequest is the argument of the create update.
type CreateRequest struct {
	SubmissionID string `json:"submissionId"`
	RequestHash  string `json:"requestHash"`
	UserID       string `json:"userId"`
}

// CreateReply is the outcome of the create update.
type CreateReply struct {
	SubmissionID string           `json:"submissionId"`
	Conference   berth.Conference `json:"conference"`
}

// ReleaseRequest is the argument of the release update.
type ReleaseRequest struct {
	By string `json:"by"` // user id
}

// UnitNews is what a conference hears of a unit. One of Gone, Copy and Missing is set.
type UnitNews struct {
	NodeID      string            `json:"nodeId"`
	Generation  int64             `json:"generation"`
	Incarnation berth.Incarnation `json:"incarnation"`
	// Gone is why the generation is no more.
	Gone berth.Departure `json:"gone,omitempty"`
	// Copy is what the unit's list says of this conference.
	Copy *berth.UnitCopy `json:"copy,omitempty"`
	// Missing: the unit's list has no such conference.
	Missing bool `json:"missing,omitempty"`
}

// LinkInput starts a link.
type LinkInput struct {
	NodeID     string        `json:"nodeId"`
	Generation int64         `json:"generation"`
	Command    time.Duration `json:"command"` // how long the unit may take to answer
}

// Conference runs one conference.
func Conference(_ workflow.Context, _ ConferenceInput) (berth.Conference, error) {
	return berth.Conference{}, nil
}

// Link looks after one generation of a unit.
func Link(_ workflow.Context, _ LinkInput) error { return nil }
