package openai

import "encoding/json"

// Model is a model as the protocol lists it.
type Model struct {
	ID      string
	Created int64 // Unix time
	OwnedBy string
}

// MarshalJSON returns the object of the protocol.
func (m Model) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}{m.ID, "model", m.Created, m.OwnedBy})
}

// ModelList is the answer to a request for all models.
type ModelList []Model

// MarshalJSON returns the object of the protocol.
func (l ModelList) MarshalJSON() ([]byte, error) {
	if l == nil {
		l = ModelList{}
	}
	return json.Marshal(struct {
		Object string  `json:"object"`
		Data   []Model `json:"data"`
	}{"list", l})
}
