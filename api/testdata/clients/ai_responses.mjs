// The client ai of Vercel, with its provider @ai-sdk/openai, which uses responses.
import assert from 'node:assert/strict'
import { createOpenAI } from '@ai-sdk/openai'
import { APICallError, generateObject, generateText, jsonSchema, stepCountIs, streamObject, streamText, tool } from 'ai'
import * as t from './run.mjs'

const model = createOpenAI({ baseURL: t.baseURL, apiKey: t.apiKey }).responses('large')
const onError = () => {} // of streams: it logs them by default

await t.run({
  async create() {
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
  },
  async conversation() {
    const first = await generateText({ model, prompt: 'My name is Ada.' })
    const previousResponseId = first.providerMetadata.openai.responseId
    const second = await generateText({ model, prompt: 'Hello', providerOptions: { openai: { previousResponseId } } })
    assert.notEqual(second.providerMetadata.openai.responseId, previousResponseId)
  },
  async tools() {
    const tools = {
      get_weather: tool({
        inputSchema: jsonSchema({ type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }),
        execute: async ({ city }) => `Sunny, 21 degrees in ${city.length} letters`,
      }),
    }
    for (const store of [true, false]) { // with references to the items of the first answer, and with the items
      const question = { model, tools, prompt: 'How is the weather in Paris?', stopWhen: stepCountIs(2), providerOptions: { openai: { store } } }
      const answer = await generateText(question)
      assert.deepEqual(answer.steps.map((s) => s.finishReason), ['tool-calls', 'stop'])
      assert.match(answer.text, /Sunny, 21 degrees/)
      const stream = streamText({ ...question, onError })
      await stream.consumeStream()
      assert.equal(await stream.text, answer.text)
    }
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
  async 'unknown parameter'() {
    const e = await t.failure(generateText({ model, prompt: 'Hello', providerOptions: { openai: { conversation: 'conv_1' } } }))
    assert.ok(APICallError.isInstance(e), String(e))
    assert.deepEqual([e.statusCode, e.data.error.param], [400, 'conversation'])
    return e.message
  },
  async 'error in a stream'() {
    let text = ''
    let failed
    let reason
    for await (const part of streamText({ model, prompt: t.CUT, onError }).fullStream) {
      if (part.type === 'text-delta') text += part.text
      if (part.type === 'error') failed = part.error
      if (part.type === 'finish') reason = part.finishReason
    }
    assert.equal(text, t.PART)
    return `${reason} ${JSON.stringify(failed)}`
  },
})
