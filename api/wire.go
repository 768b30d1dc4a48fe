package api

import "berth/client"

// The requests and responses that package client defines, under the names that they have in the description.
type (
	conferenceBody      client.ConferenceSpec
	executeBody         client.ExecutionSpec
	executeView         client.AcceptedExecution
	heartbeatOutputBody client.HeartbeatReply
	jobBody             client.JobSpec
	jobView             client.Dispatch
	putSessionInputBody client.SessionSpec
	registration        client.Registered
	submitAnswer        client.Acceptance
)
