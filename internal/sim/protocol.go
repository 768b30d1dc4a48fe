package sim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// fingerprint is the system_fingerprint of every answer.
const fingerprint = "berth-stand-in"

// headerStandIn marks every response of the model server.
const headerStandIn = "X-Berth-Stand-In"

// chatRequest is the part of a chat-completions request that the stand-in reads; the rest is accepted and unused.
type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Stream        bool          `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           int             `json:"max_tokens"`
	MaxCompletionTokens int             `json:"max_completion_tokens"`
	ResponseFormat      *responseFormat `json:"response_format"`
}

type responseFormat struct {
	Type       string `json:"type"`
	JSONSchema *struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

// chatMessage is one message with its content parts taken apart.
type chatMessage struct {
	Role   string
	Text   string
	Images []string // URLs as they were given
}

// UnmarshalJSON accepts content as a string, null, or a list of parts.
func (m *chatMessage) UnmarshalJSON(b []byte) error {
	var raw struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	m.Role = raw.Role
	content := bytes.TrimSpace(raw.Content)
	if len(content) == 0 || bytes.Equal(content, []byte("null")) {
		return nil
	}
	if content[0] == '"' {
		return json.Unmarshal(content, &m.Text)
	}
	var parts []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		ImageURL struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if err := json.Unmarshal(content, &parts); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	var text []string
	for _, p := range parts {
		switch p.Type {
		case "text":
			text = append(text, p.Text)
		case "image_url":
			m.Images = append(m.Images, p.ImageURL.URL)
		default:
			return fmt.Errorf("content part of type %q is not supported", p.Type)
		}
	}
	m.Text = strings.Join(text, "\n")
	return nil
}

// decodeImage reads a data URL with a PNG or JPEG.
func decodeImage(url string) ([]byte, error) {
	head, body, ok := strings.Cut(url, ",")
	if !ok || !strings.HasPrefix(head, "data:") || !strings.HasSuffix(head, ";base64") {
		return nil, fmt.Errorf("only data URLs in base64 are read, such as data:image/png;base64,…")
	}
	img, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return nil, fmt.Errorf("the data URL is not base64: %w", err)
	}
	if kind := http.DetectContentType(img); kind != "image/png" && kind != "image/jpeg" {
		return nil, fmt.Errorf("the image is neither PNG nor JPEG but %s", kind)
	}
	return img, nil
}

// usage is OpenAI's, with the reasoning counted within the completion.
type usage struct {
	PromptTokens     int               `json:"prompt_tokens"`
	CompletionTokens int               `json:"completion_tokens"`
	TotalTokens      int               `json:"total_tokens"`
	Details          *completionDetail `json:"completion_tokens_details,omitempty"`
}

type completionDetail struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

type chatResponse struct {
	ID                string   `json:"id"`
	Object            string   `json:"object"`
	Created           int64    `json:"created"`
	Model             string   `json:"model"`
	SystemFingerprint string   `json:"system_fingerprint"`
	Choices           []choice `json:"choices"`
	Usage             *usage   `json:"usage,omitempty"`
}

type choice struct {
	Index        int      `json:"index"`
	Message      *payload `json:"message,omitempty"`
	Delta        *payload `json:"delta,omitempty"`
	FinishReason *string  `json:"finish_reason"`
}

type payload struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content,omitempty"`
	Reasoning *string `json:"reasoning_content,omitempty"`
}

// apiError is a failure in OpenAI's shape.
type apiError struct {
	status     int
	retryAfter int // seconds; 0: no header
	Message    string
	Type       string
	Param      string
	Code       string
}

func (e *apiError) Error() string { return e.Message }

func invalidRequest(param, format string, args ...any) *apiError {
	return &apiError{
		status: http.StatusBadRequest, Type: "invalid_request_error", Code: "invalid_request",
		Param: param, Message: fmt.Sprintf(format, args...),
	}
}

func (e *apiError) write(w http.ResponseWriter) {
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(e.retryAfter))
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{
		"message": e.Message, "type": e.Type, "param": orNull(e.Param), "code": orNull(e.Code),
	}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone: nobody to tell
}
