// Command batch asks for many answers at a time, with the client openai-go. Its environment is that of the other programs, see work.mjs.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/openai/openai-go/v3"
)

// maxTokens bounds an answer, and so what berth reserves for it.
const maxTokens = 40

func main() {
	client := openai.NewClient() // reads OPENAI_BASE_URL and OPENAI_API_KEY
	calls, atOnce := number("CALLS", "100"), number("AT_ONCE", "20")
	topic, model := cmp.Or(os.Getenv("TOPIC"), "rivers"), cmp.Or(os.Getenv("MODEL"), "deepseek-chat")
	var complete atomic.Int64
	var running sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i := range calls {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			question := fmt.Sprintf("Explain %s, part %d.", topic, i+1)
			answer, err := client.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{
				Model: model, MaxCompletionTokens: openai.Int(maxTokens), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
			})
			switch {
			case err != nil:
				fmt.Fprintln(os.Stderr, "batch:", question, err)
			case answer.Choices[0].FinishReason == "stop" && answer.Choices[0].Message.Content != "":
				complete.Add(1)
			}
		})
	}
	running.Wait()
	fmt.Printf("batch: %d of %d answers are complete\n", complete.Load(), calls)
}

func number(variable, otherwise string) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv(variable), otherwise))
	if err != nil {
		fmt.Fprintln(os.Stderr, "batch:", variable, "is not a number")
		os.Exit(1)
	}
	return n
}
