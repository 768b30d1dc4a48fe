// A chat that shows its answers while they are made, with the client openai.
import OpenAI from 'openai'
import { again, baseURL, maxTokens, model, work } from './work.mjs'

const client = new OpenAI({ baseURL })

await work('chat', (question, headers) =>
  again(async () => {
    const messages = [{ role: 'user', content: question }]
    const stream = await client.chat.completions.create({ model, max_completion_tokens: maxTokens, messages, stream: true }, { headers })
    let text = ''
    let reason
    for await (const { choices } of stream) {
      text += choices[0]?.delta.content ?? ''
      reason = choices[0]?.finish_reason ?? reason
    }
    return text && reason === 'stop' ? 1 : 0
  }),
)
