package sim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// chatRequest is the part of a chat completion request that the simulator reads; other fields are ignored.
type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Stream        bool          `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	ResponseFormat      struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

// prompt returns the texts of the system and the user messages, and the URLs of their images.
func (r chatRequest) prompt() (system, user string, images []string) {
	for _, m := range r.Messages {
		switch m.Role {
		case "system", "developer":
			system += m.Text + "\n"
		case "user":
			user += m.Text + "\n"
			images = append(images, m.Images...)
		}
	}
	return system, user, images
}

// chatMessage is one message; Images are the URLs of its image parts.
type chatMessage struct {
	Role   string
	Text   string
	Images []string
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
	if len(content) == 0 {
		return nil
	}
	if content[0] != '[' {
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
	for _, p := range parts {
		switch p.Type {
		case "text":
			m.Text = strings.TrimPrefix(m.Text+"\n"+p.Text, "\n")
		case "image_url":
			m.Images = append(m.Images, p.ImageURL.URL)
		default:
			return fmt.Errorf("unsupported content part %q", p.Type)
		}
	}
	return nil
}

// decodeImage reads a data URL with a PNG or JPEG.
func decodeImage(url string) ([]byte, error) {
	head, body, ok := strings.Cut(url, ",")
	if !ok || !strings.HasPrefix(head, "data:") || !strings.HasSuffix(head, ";base64") {
		return nil, errors.New("must be a base64 data URL, such as data:image/png;base64,…")
	}
	img, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return nil, fmt.Errorf("invalid base64: %w", err)
	}
	if kind := http.DetectContentType(img); kind != "image/png" && kind != "image/jpeg" {
		return nil, fmt.Errorf("must be PNG or JPEG, not %s", kind)
	}
	return img, nil
}
