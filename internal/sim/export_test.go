package sim

import (
	"context"
	"encoding/json"
)

// Answer returns the answer to the body of a request, without its way over HTTP.
func Answer(body []byte) (string, error) {
	var req chatRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return "", err
	}
	out, err := answerTo(context.Background(), req, nil)
	return out.text, err
}
