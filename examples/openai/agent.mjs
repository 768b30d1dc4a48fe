// An agent that calls a tool, with the client openai. Each question needs two answers.
import OpenAI from 'openai'
import { baseURL, maxTokens, model, work } from './work.mjs'

const client = new OpenAI({ baseURL })
const tools = [
  {
    type: 'function',
    function: {
      name: 'look_up',
      description: 'Returns what an encyclopaedia has on a subject',
      parameters: { type: 'object', properties: { subject: { type: 'string' } }, required: ['subject'] },
    },
  },
]

async function ask(question) {
  const messages = [{ role: 'user', content: question }]
  const next = async () => (await client.chat.completions.create({ model, max_completion_tokens: maxTokens, messages, tools })).choices[0]
  const first = await next()
  if (first.finish_reason !== 'tool_calls') return 0
  messages.push(first.message)
  for (const call of first.message.tool_calls) {
    const { subject } = JSON.parse(call.function.arguments)
    messages.push({ role: 'tool', tool_call_id: call.id, content: `${subject}: 12 pages` })
  }
  try {
    const second = await next()
    return second.finish_reason === 'stop' && second.message.content ? 2 : 1
  } catch (error) {
    console.error(`agent: ${question} ${error}`)
    return 1
  }
}

await work('agent', ask, 2)
