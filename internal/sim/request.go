package sim

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// chatRequest is the part of a chat completion request that the simulator reads; other fields are ignored.
type chatRequest struct {
	Model         string    `json:"model"`
	Messages      []message `json:"messages"`
	Stream        bool      `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
}

type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is the parts of a message. In JSON it may also be a text, or null.
type content []contentPart

type contentPart struct {
	Text     string `json:"text"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

func (c *content) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*c = content{{Text: text}}
		return nil
	}
	return json.Unmarshal(b, (*[]contentPart)(c))
}

func (c content) text() (text string) {
	for _, p := range c {
		text += p.Text
	}
	return text
}

// images returns the URLs of the images.
func (r chatRequest) images() (urls []string) {
	for _, m := range r.Messages {
		for _, p := range m.Content {
			if p.ImageURL.URL != "" {
				urls = append(urls, p.ImageURL.URL)
			}
		}
	}
	return urls
}

// tokens returns about as many tokens as providers count.
func (r chatRequest) tokens() int {
	const perMessage, perImage = 4, 765
	n := perMessage*len(r.Messages) + perImage*len(r.images())
	for _, m := range r.Messages {
		n += len(splitTokens(m.Content.text()))
	}
	return n
}

// decodeImage reads a data URL.
func decodeImage(url string) ([]byte, error) {
	head, body, _ := strings.Cut(url, ",")
	img, err := base64.StdEncoding.DecodeString(body)
	if err != nil || !strings.HasPrefix(head, "data:image/") || !strings.HasSuffix(head, ";base64") {
		return nil, failure(http.StatusBadRequest, "image_url: must be a base64 data URL, such as data:image/png;base64,…")
	}
	return img, nil
}
