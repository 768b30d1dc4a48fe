// Summaries as whole texts, with the AI SDK.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText } from 'ai'
import { apiKey, baseURL, maxTokens, model, work } from './work.mjs'

const provider = createOpenAICompatible({ name: 'berth', baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true })

await work('summary', async (question, headers) => {
  const { text, finishReason } = await generateText({ model: provider(model), prompt: question, maxOutputTokens: maxTokens, headers })
  return text && finishReason === 'stop' ? 1 : 0
})
