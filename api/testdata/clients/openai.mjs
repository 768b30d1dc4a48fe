// The client openai of OpenAI.
import assert from 'node:assert/strict'
import OpenAI from 'openai'
import { zodResponseFormat } from 'openai/helpers/zod'
import { z } from 'zod'
import * as t from './run.mjs'

const client = new OpenAI({ baseURL: t.baseURL, apiKey: t.apiKey })

const create = (content, more) => client.chat.completions.create({ model: 'large', messages: [{ role: 'user', content }], ...more })
const tools = [{ type: 'function', function: { name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } }]

await t.run({
  async chat() {
    const answer = await create('Hello')
    assert.equal(answer.object, 'chat.completion')
    assert.equal(answer.model, 'large')
    assert.equal(answer.choices[0].finish_reason, 'stop')
    assert.ok(answer.usage.total_tokens > 0)
    return answer.choices[0].message.content
  },
  async stream() {
    const whole = await create('Hello')
    const stream = client.chat.completions.stream({ model: 'large', messages: [{ role: 'user', content: 'Hello' }], stream_options: { include_usage: true } })
    let text = ''
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ''
    const joined = await stream.finalChatCompletion()
    assert.equal(text, whole.choices[0].message.content)
    assert.equal(joined.choices[0].message.content, text)
    assert.equal(joined.usage.total_tokens, whole.usage.total_tokens)
    return text
  },
  async tools() {
    const messages = [{ role: 'user', content: 'How is the weather in Paris?' }]
    const first = await client.chat.completions.create({ model: 'large', messages, tools })
    assert.equal(first.choices[0].finish_reason, 'tool_calls')
    const [call] = first.choices[0].message.tool_calls
    assert.equal(call.function.name, 'get_weather')
    const streamed = await client.chat.completions.stream({ model: 'large', messages, tools }).finalChatCompletion()
    assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments)
    messages.push(first.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'Sunny, 21 degrees' })
    const second = await client.chat.completions.create({ model: 'large', messages, tools })
    assert.match(second.choices[0].message.content, /Sunny, 21 degrees/)
    return call.function.arguments
  },
  async 'structured output'() {
    const answer = await client.chat.completions.parse({
      model: 'large',
      messages: [{ role: 'user', content: 'Plan a trip to Paris.' }],
      response_format: zodResponseFormat(z.object({ city: z.string(), days: z.int() }), 'trip'),
    })
    return t.checkObject(answer.choices[0].message.parsed)
  },
  async image() {
    const answer = await create([{ type: 'text', text: 'What is it?' }, { type: 'image_url', image_url: { url: t.image } }])
    assert.equal(answer.choices[0].message.content, t.seenImage)
  },
  async 'several choices'() {
    const answer = await create('Hello', { n: 2 })
    assert.deepEqual(answer.choices.map((c) => c.index), [0, 1])
    assert.notEqual(answer.choices[0].message.content, answer.choices[1].message.content)
  },
  async logprobs() {
    const answer = await create('Hello', { logprobs: true, top_logprobs: 1 })
    assert.deepEqual(answer.choices[0].logprobs.content[0], { token: 'Hi', logprob: -0.5, bytes: [72, 105], top_logprobs: [{ token: 'Hi', logprob: -0.5, bytes: [72, 105] }] })
  },
  async embeddings() {
    const answer = await client.embeddings.create({ model: 'large', input: ['a red lamp', 'a blue chair'], dimensions: 8 }) // in base64
    assert.deepEqual(answer.data.map((d) => [d.index, d.embedding.length]), [[0, 8], [1, 8]])
    const floats = await client.embeddings.create({ model: 'large', input: ['a red lamp', 'a blue chair'], dimensions: 8, encoding_format: 'float' })
    for (const i of [0, 1]) floats.data[i].embedding.forEach((v, k) => assert.ok(Math.abs(v - answer.data[i].embedding[k]) < 1e-6))
  },
  async models() {
    const names = []
    for await (const m of client.models.list()) names.push(m.id)
    assert.deepEqual(names.sort(), ['gpt-large', 'large'])
    assert.equal((await client.models.retrieve('large')).object, 'model')
  },
  async 'unknown model'() {
    const e = await t.failure(create('Hello', { model: 'huge' }))
    assert.ok(e instanceof OpenAI.NotFoundError)
    assert.deepEqual([e.status, e.type, e.param, e.code], [404, 'invalid_request_error', 'model', 'model_not_found'])
    assert.match(e.message, /^404 the model "huge" does not exist/)
    assert.ok(e.requestID)
    return e.message
  },
  async 'wrong key'() {
    const e = await t.failure(new OpenAI({ baseURL: t.baseURL, apiKey: 'sk-wrong' }).models.list())
    assert.ok(e instanceof OpenAI.AuthenticationError)
    assert.deepEqual([e.status, e.type, e.code], [401, 'invalid_request_error', 'invalid_api_key'])
    return e.message
  },
  async 'unknown parameter'() {
    const e = await t.failure(create('Hello', { top_a: 1 }))
    assert.ok(e instanceof OpenAI.BadRequestError)
    assert.deepEqual([e.status, e.param, e.code], [400, 'top_a', 'unknown_parameter'])
    return e.message
  },
  async abort() {
    const stream = await create(t.HANG, { stream: true })
    let text = ''
    for await (const chunk of stream) if ((text += chunk.choices[0].delta.content ?? '') === t.PART) stream.controller.abort()
    assert.equal(text, t.PART)
    return (await create(t.LEFT)).choices[0].message.content
  },
  async 'error in a stream'() {
    let text = ''
    const e = await t.failure((async () => {
      for await (const chunk of await create(t.CUT, { stream: true })) text += chunk.choices[0].delta.content ?? ''
    })())
    assert.equal(text, t.PART)
    assert.ok(e instanceof OpenAI.APIError, String(e))
    assert.equal(e.type, 'server_error')
    return e.message
  },
  async 'retry after 429'() {
    const counted = t.count()
    await client.withOptions({ fetch: counted.fetch }).chat.completions.create({ model: 'large', messages: [{ role: 'user', content: t.LIMITED }] })
    return t.checkRetry(counted.requests, 429)
  },
  async 'retry after 5xx'() {
    const counted = t.count()
    await client.withOptions({ fetch: counted.fetch }).chat.completions.create({ model: 'large', messages: [{ role: 'user', content: t.FAILING }] })
    assert.deepEqual(counted.requests.map((r) => r.status), [502, 200])
  },
})
