package testprovider

import (
	"encoding/json"
	"sync"
)

// cache has the prompts of the last calls, as providers keep what they computed of them.
type cache struct {
	mu      sync.Mutex //nolint:forbidigo // of a fake
	size    int
	prompts []string // the newest last
}

// The tokens of a prompt are estimated by its bytes, and its beginning is found in blocks, as OpenAI does.
const (
	tokenBytes  = 4
	blockTokens = 16
)

// Cache makes the provider keep the prompts of so many calls, and state in its answers how many tokens of the beginning of a prompt they
// have.
func (s *Server) Cache(prompts int) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	s.cache.size = prompts
}

// read sets the tokens of a call, and keeps its prompt.
func (c *cache) read(of *call, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size == 0 {
		return
	}
	var request struct {
		Messages json.RawMessage `json:"messages"`
	}
	_ = json.Unmarshal(body, &request) // what is not readable has no prompt
	prompt, found := string(request.Messages), 0
	for _, earlier := range c.prompts {
		found = max(found, common(earlier, prompt))
	}
	of.prompt = len(prompt) / tokenBytes
	of.cached = found / tokenBytes / blockTokens * blockTokens
	c.prompts = append(c.prompts, prompt)
	c.prompts = c.prompts[max(0, len(c.prompts)-c.size):]
}

// common returns how many bytes two texts have in common at their beginning.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
