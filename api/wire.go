package api

import "berth/client"

// The requests and responses that package client defines, under the names that they have in the description.
type (
	addParticipantInputBody client.ParticipantSpec
	conferenceBody          client.ConferenceSpec
	entryView               client.CreditEntry
	executeBody             client.ExecutionSpec
	executeView             client.AcceptedExecution
	getConferenceOutputBody client.ConferenceState
	heartbeatOutputBody     client.HeartbeatReply
	jobBody                 client.JobSpec
	jobView                 client.Dispatch
	poolView                client.Pool
	putSessionInputBody     client.SessionSpec
	registration            client.Registered
	submitAnswer            client.Acceptance
	taskView                client.Task

	// AccountView is a user's account.
	AccountView client.Account
	// ConferenceView is a conference in a response.
	ConferenceView client.Conference
	// JoinView is everything that a client needs to join.
	JoinView client.Admission
)
