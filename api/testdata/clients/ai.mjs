// The client ai of Vercel, with its provider @ai-sdk/openai-compatible.
import assert from 'node:assert/strict'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, embedMany, generateObject, generateText, jsonSchema, stepCountIs, streamObject, streamText, tool } from 'ai'
import * as t from './run.mjs'

const berthWith = (more) => createOpenAICompatible({ name: 'berth', baseURL: t.baseURL, apiKey: t.apiKey, includeUsage: true, supportsStructuredOutputs: true, ...more })
const berth = berthWith()
const model = berth('large')
const onError = () => {} // of streams: it logs them by default

await t.run({
  async chat() {
    const answer = await generateText({ model, prompt: 'Hello' })
    assert.equal(answer.finishReason, 'stop')
    assert.equal(answer.response.modelId, 'large')
    assert.ok(answer.usage.totalTokens > 0)
    return answer.text
  },
  async stream() {
    const whole = await generateText({ model, prompt: 'Hello' })
    const stream = streamText({ model, prompt: 'Hello', onError })
    let text = ''
    for await (const part of stream.textStream) text += part
    assert.equal(text, whole.text)
    assert.equal((await stream.usage).totalTokens, whole.usage.totalTokens)
    return text
  },
  async tools() {
    const tools = {
      get_weather: tool({
        inputSchema: jsonSchema({ type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }),
        execute: async ({ city }) => `Sunny, 21 degrees in ${city.length} letters`,
      }),
    }
    const question = { model, tools, prompt: 'How is the weather in Paris?', stopWhen: stepCountIs(2) }
    const answer = await generateText(question)
    assert.deepEqual(answer.steps.map((s) => s.finishReason), ['tool-calls', 'stop'])
    assert.match(answer.text, /Sunny, 21 degrees/)
    const stream = streamText({ ...question, onError })
    await stream.consumeStream()
    assert.equal(await stream.text, answer.text)
    return JSON.stringify(answer.steps[0].toolCalls[0].input)
  },
  async 'structured output'() {
    const question = { model, schema: jsonSchema(t.schema), prompt: 'Plan a trip to Paris.' }
    const { object } = await generateObject(question)
    const stream = streamObject({ ...question, onError })
    for await (const _ of stream.partialObjectStream);
    assert.deepEqual(await stream.object, object)
    return t.checkObject(object)
  },
  async image() {
    const content = [{ type: 'text', text: 'What is it?' }, { type: 'image', image: t.image }]
    assert.equal((await generateText({ model, messages: [{ role: 'user', content }] })).text, t.seenImage)
  },
  async embeddings() {
    const { embeddings } = await embedMany({ model: berth.embeddingModel('large'), values: ['a red lamp', 'a blue chair'] })
    assert.equal(embeddings.length, 2)
    assert.notDeepEqual(embeddings[0], embeddings[1])
  },
  async 'unknown model'() {
    const e = await t.failure(generateText({ model: berth('huge'), prompt: 'Hello' }))
    assert.ok(APICallError.isInstance(e), String(e))
    assert.deepEqual([e.statusCode, e.isRetryable, e.data.error.code, e.data.error.param], [404, false, 'model_not_found', 'model'])
    assert.match(e.message, /^the model "huge" does not exist/)
    return e.message
  },
  async 'wrong key'() {
    const e = await t.failure(generateText({ model: berthWith({ apiKey: 'sk-wrong' })('large'), prompt: 'Hello' }))
    assert.ok(APICallError.isInstance(e), String(e))
    assert.deepEqual([e.statusCode, e.isRetryable, e.data.error.code], [401, false, 'invalid_api_key'])
    return e.message
  },
  async 'unknown parameter'() {
    const e = await t.failure(generateText({ model, prompt: 'Hello', providerOptions: { berth: { top_a: 1 } } }))
    assert.ok(APICallError.isInstance(e), String(e))
    assert.deepEqual([e.statusCode, e.data.error.code, e.data.error.param], [400, 'unknown_parameter', 'top_a'])
    return e.message
  },
  async abort() {
    const leave = new AbortController()
    let text = ''
    const stream = streamText({ model, prompt: t.HANG, abortSignal: leave.signal, onError })
    for await (const part of stream.fullStream) {
      if (part.type === 'text-delta' && (text += part.text) === t.PART) leave.abort()
    }
    assert.equal(text, t.PART)
    return (await generateText({ model, prompt: t.LEFT })).text
  },
  async 'error in a stream'() {
    let text = ''
    let failed
    for await (const part of streamText({ model, prompt: t.CUT, onError }).fullStream) {
      if (part.type === 'text-delta') text += part.text
      if (part.type === 'error') failed = part.error
    }
    assert.equal(text, t.PART)
    assert.match(String(failed?.message ?? failed), /closed the connection/)
    return String(failed?.message ?? failed)
  },
  async 'retry after 429'() {
    const counted = t.count()
    await generateText({ model: berthWith({ fetch: counted.fetch })('large'), prompt: t.LIMITED })
    return t.checkRetry(counted.requests, 429)
  },
  async 'retry after 5xx'() {
    const counted = t.count()
    await generateText({ model: berthWith({ fetch: counted.fetch })('large'), prompt: t.FAILING })
    assert.deepEqual(counted.requests.map((r) => r.status), [502, 200])
  },
})
