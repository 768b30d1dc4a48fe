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
	MaxTokens           int            `json:"max_tokens"`
	MaxCompletionTokens int            `json:"max_completion_tokens"`
	N                   *int           `json:"n"`
	Stop                texts          `json:"stop"`
	Tools               []tool         `json:"tools"`
	ToolChoice          toolChoice     `json:"tool_choice"`
	ParallelToolCalls   *bool          `json:"parallel_tool_calls"`
	ResponseFormat      responseFormat `json:"response_format"`
}

const maxChoices = 128 // OpenAI's

// readChat reads the body of a request.
func readChat(r *http.Request) (req chatRequest, failed *apiError) {
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return req, failure(http.StatusBadRequest, "a chat completion request is required: %v", err)
	}
	switch {
	case req.Model == "":
		return req, invalid("model", "a model is required")
	case len(req.Messages) == 0:
		return req, invalid("messages", "at least one message is required")
	case req.N != nil && (*req.N < 1 || *req.N > maxChoices):
		return req, invalid("n", "must be between 1 and %d", maxChoices)
	}
	return req, req.checkTools()
}

// choices returns the number of answers.
func (r chatRequest) choices() int {
	if r.N == nil {
		return 1
	}
	return *r.N
}

type responseFormat struct {
	Type       string `json:"type"`
	JSONSchema struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

func (f responseFormat) json() bool { return f.Type == "json_schema" || f.Type == "json_object" }

// schema returns the schema that an answer must have: that of the request, else the one that its messages quote, nil for none.
func (f responseFormat) schema(quoted []byte) []byte {
	switch {
	case f.json() && len(f.JSONSchema.Schema) > 0:
		return f.JSONSchema.Schema
	case f.json() && quoted == nil:
		return []byte(`{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}`)
	default:
		return quoted
	}
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

// texts is a list of texts. In JSON it may also be one text, or null.
type texts []string

func (t *texts) UnmarshalJSON(b []byte) error {
	var one string
	if b[0] == '"' && json.Unmarshal(b, &one) == nil {
		*t = texts{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
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
	for _, t := range r.Tools {
		n += len(splitTokens(t.Function.Name + t.Function.Description + string(t.Function.Parameters)))
	}
	return n
}

// decodeImage reads a data URL.
func decodeImage(url string) ([]byte, error) {
	head, body, _ := strings.Cut(url, ",")
	img, err := base64.StdEncoding.DecodeString(body)
	if err != nil || !strings.HasPrefix(head, "data:image/") || !strings.HasSuffix(head, ";base64") {
		return nil, invalid("messages", "image_url: must be a base64 data URL, such as data:image/png;base64,…")
	}
	return img, nil
}
