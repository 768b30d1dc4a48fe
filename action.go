package berth

import "time"

// Action is a request of an operator that changes something, for the audit.
type Action struct {
	ID     int64     `json:"actionId"`
	At     time.Time `json:"at"`
	UserID string    `json:"userId"`
	// Name is the operation's id in the API description, Target the path of the request.
	Name      string `json:"action"`
	Target    string `json:"target"`
	RequestID string `json:"requestId"`
	// Status is the HTTP status of the response; 0 while the request is handled, and if the process ended before it had
	// recorded the result.
	Status int `json:"status"`
}
