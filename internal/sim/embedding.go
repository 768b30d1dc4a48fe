package sim

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
)

const (
	defaultDimensions = 256
	maxDimensions     = 4096
	maxInputs         = 2048 // OpenAI's
)

// embeddingRequest is the part of a request for vectors that the simulator reads.
type embeddingRequest struct {
	Model          string         `json:"model"`
	Input          embeddingInput `json:"input"`
	EncodingFormat string         `json:"encoding_format"`
	Dimensions     *int           `json:"dimensions"`
}

// embeddingInput is the texts of a request, each in its words. In JSON it is a text, the numbers of tokens, or a list of either.
type embeddingInput []inputText

type inputText struct {
	words  []string
	tokens int
}

func (in *embeddingInput) UnmarshalJSON(b []byte) error {
	var numbers []float64
	if b[0] == '"' || json.Unmarshal(b, &numbers) == nil && len(numbers) > 0 {
		*in = make(embeddingInput, 1)
		return json.Unmarshal(b, &(*in)[0])
	}
	return json.Unmarshal(b, (*[]inputText)(in))
}

func (t *inputText) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		var tokens []int
		err := json.Unmarshal(b, &tokens)
		for _, n := range tokens {
			t.words = append(t.words, strconv.Itoa(n))
		}
		t.tokens = len(tokens)
		return err
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	t.tokens = len(splitTokens(text))
	if t.words = words(clip(text, maxRead)); len(t.words) == 0 && text != "" {
		t.words = []string{text}
	}
	return nil
}

// vector returns a vector of length 1: the sum of one for each word, so that texts with the same words are similar.
func (t inputText) vector(dimensions int) []float32 {
	sum := make([]float64, dimensions)
	for _, word := range t.words {
		h := fnv.New64a()
		_, _ = h.Write([]byte(word)) // does not fail
		r := rand.New(rand.NewPCG(h.Sum64(), 0))
		for i := range sum {
			sum[i] += r.NormFloat64()
		}
	}
	length := 0.0
	for _, x := range sum {
		length += x * x
	}
	out := make([]float32, dimensions)
	for i, x := range sum {
		out[i] = float32(x / math.Sqrt(length))
	}
	return out
}

func (r embeddingRequest) check() *apiError {
	switch {
	case r.Model == "":
		return invalid("model", "a model is required")
	case len(r.Input) == 0 || len(r.Input) > maxInputs:
		return invalid("input", "1 to %d texts are required", maxInputs)
	case r.Dimensions != nil && (*r.Dimensions < 1 || *r.Dimensions > maxDimensions):
		return invalid("dimensions", "must be between 1 and %d", maxDimensions)
	case r.EncodingFormat != "" && r.EncodingFormat != "float" && r.EncodingFormat != "base64":
		return invalid("encoding_format", "must be float or base64")
	}
	for _, text := range r.Input {
		if text.tokens == 0 {
			return invalid("input", "a text must not be empty")
		}
	}
	return nil
}

func (s *server) embed(w http.ResponseWriter, r *http.Request) {
	var req embeddingRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		failure(http.StatusBadRequest, "a request for embeddings is required: %v", err).write(w)
		return
	}
	if failed := req.check(); failed != nil {
		failed.write(w)
		return
	}
	c := s.begin(req.Model)
	defer func() { c.end(r.Context().Err() != nil) }()
	if refused := c.fault.refusal(); refused != nil {
		refused.write(w)
		return
	}
	switch p := (&pacer{ctx: r.Context()}); {
	case c.fault.Kind == FaultCut:
		panic(http.ErrAbortHandler)
	case c.fault.Kind == FaultStall:
		<-r.Context().Done()
		return
	case !p.sleep(s.opt.FirstTokenDelay):
		return
	}
	var data []any
	tokens := 0
	for i, text := range req.Input {
		tokens += text.tokens
		data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": req.encode(text)})
	}
	c.end(false)
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list", "model": req.Model, "data": data, "usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens},
	})
}

// encode returns the vector of a text, as a list of numbers or in base64.
func (r embeddingRequest) encode(text inputText) any {
	dimensions := defaultDimensions
	if r.Dimensions != nil {
		dimensions = *r.Dimensions
	}
	vector := text.vector(dimensions)
	if cmp.Or(r.EncodingFormat, "float") == "float" {
		return vector
	}
	b := make([]byte, 0, 4*dimensions)
	for _, x := range vector {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}
