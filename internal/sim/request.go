package sim

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// chatRequest is the part of a chat completion request that the simulator reads; other fields are ignored.
type chatRequest struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	Stream        bool `json:"stream"`
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

// content is the parts of a message. In JSON it may also be a text, or null.
type content []part

type part struct {
	Type     string `json:"type"` // typeText or typeImage
	Text     string `json:"text"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

const (
	typeText  = "text"
	typeImage = "image_url"
)

func (c *content) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*c = content{{Type: typeText, Text: text}}
		return nil
	}
	if err := json.Unmarshal(b, (*[]part)(c)); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	for _, p := range *c {
		if p.Type != typeText && p.Type != typeImage {
			return fmt.Errorf("unsupported content part %q", p.Type)
		}
	}
	return nil
}

// prompt returns the texts of the system and the user messages, the URLs of the user's images, and about as many tokens as
// providers count.
func (r chatRequest) prompt() (system, user string, images []string, tokens int) {
	const perMessage, perImage = 4, 765
	for _, m := range r.Messages {
		tokens += perMessage
		for _, p := range m.Content {
			tokens += len(splitTokens(p.Text))
			switch {
			case p.Type == typeImage:
				tokens += perImage
				images = append(images, p.ImageURL.URL)
			case m.Role == "system", m.Role == "developer":
				system += p.Text + "\n"
			case m.Role == "user":
				user += p.Text + "\n"
			}
		}
	}
	return system, user, images, tokens
}

// begun returns the beginning of the answer that the caller wants to be continued: the assistant's message before the last
// one; empty for a new answer.
func (r chatRequest) begun() (text string) {
	if n := len(r.Messages); n >= 2 && r.Messages[n-2].Role == "assistant" {
		for _, p := range r.Messages[n-2].Content {
			text += p.Text
		}
	}
	return text
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
