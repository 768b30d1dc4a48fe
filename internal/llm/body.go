package llm

// callBody is what a call asks for, in the fields that every provider knows. The library's own parameters would do, but its encoder
// took a third of a call's processor time.
type callBody struct {
	Model               string         `json:"model"`
	Messages            []bodyMessage  `json:"messages"`
	MaxTokens           int            `json:"max_tokens,omitempty"`
	MaxCompletionTokens int            `json:"max_completion_tokens,omitempty"`
	ResponseFormat      *bodyFormat    `json:"response_format,omitempty"`
	StreamOptions       map[string]any `json:"stream_options"`
}

type bodyFormat struct {
	Type string `json:"type"`
}

// bodyMessage has a text as its content, or a picture and a text.
type bodyMessage struct {
	Role    Role `json:"role"`
	Content any  `json:"content"`
}

type bodyPart struct {
	Type     string     `json:"type"`
	Text     string     `json:"text,omitempty"`
	ImageURL *bodyImage `json:"image_url,omitempty"`
}

type bodyImage struct {
	URL string `json:"url"`
}

// body is what the call asks for, but for "stream", which the library adds.
func (s *session) body(call Call) callBody {
	b := callBody{Model: s.modelID, StreamOptions: map[string]any{"include_usage": true}}
	if s.maxTokensField == maxCompletionTokens {
		b.MaxCompletionTokens = call.MaxTokens
	} else {
		b.MaxTokens = call.MaxTokens
	}
	if call.JSON && s.jsonMode {
		b.ResponseFormat = &bodyFormat{Type: "json_object"}
	}
	for _, m := range call.Messages {
		b.Messages = append(b.Messages, m.body())
	}
	return b
}

func (m Message) body() bodyMessage {
	role := m.Role
	if role != RoleSystem && role != RoleAssistant {
		role = RoleUser
	}
	if m.ImageURL == "" || role != RoleUser {
		return bodyMessage{role, m.Text}
	}
	return bodyMessage{role, []bodyPart{{Type: "image_url", ImageURL: &bodyImage{m.ImageURL}}, {Type: "text", Text: m.Text}}}
}
