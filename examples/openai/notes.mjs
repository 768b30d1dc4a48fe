// Notes that are streamed, with LangChain.
import { ChatOpenAI } from '@langchain/openai'
import { again, apiKey, baseURL, maxTokens, model, work } from './work.mjs'

const chat = new ChatOpenAI({ model, apiKey, maxTokens, configuration: { baseURL } })

await work('notes', (question, headers) =>
  again(async () => {
    let whole
    for await (const chunk of await chat.stream(question, { headers })) whole = whole ? whole.concat(chunk) : chunk
    return whole?.text && whole.response_metadata.finish_reason === 'stop' ? 1 : 0
  }),
)
