// The client @langchain/openai.
import assert from 'node:assert/strict'
import { HumanMessage, ToolMessage } from '@langchain/core/messages'
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai'
import { z } from 'zod'
import * as t from './run.mjs'

const chatWith = ({ fetch, ...more } = {}) => new ChatOpenAI({ model: 'large', apiKey: t.apiKey, configuration: { baseURL: t.baseURL, fetch }, ...more })
const model = chatWith()

await t.run({
  async chat() {
    const answer = await model.invoke('Hello')
    assert.equal(answer.response_metadata.finish_reason, 'stop')
    assert.ok(answer.usage_metadata.total_tokens > 0)
    return answer.text
  },
  async stream() {
    const whole = await model.invoke('Hello')
    let joined
    for await (const chunk of await model.stream('Hello')) joined = joined ? joined.concat(chunk) : chunk
    assert.equal(joined.text, whole.text)
    assert.equal(joined.usage_metadata.total_tokens, whole.usage_metadata.total_tokens)
    return joined.text
  },
  async tools() {
    const bound = model.bindTools([{ name: 'get_weather', description: 'the weather of a city', schema: z.object({ city: z.string() }) }])
    const messages = [new HumanMessage('How is the weather in Paris?')]
    const first = await bound.invoke(messages)
    const [call] = first.tool_calls
    assert.equal(call.name, 'get_weather')
    let joined
    for await (const chunk of await bound.stream(messages)) joined = joined ? joined.concat(chunk) : chunk
    assert.deepEqual(joined.tool_calls[0].args, call.args)
    messages.push(first, new ToolMessage({ tool_call_id: call.id, content: 'Sunny, 21 degrees' }))
    assert.match((await bound.invoke(messages)).text, /Sunny, 21 degrees/)
    return JSON.stringify(call.args)
  },
  async 'structured output'() {
    const plan = model.withStructuredOutput(z.object({ city: z.string(), days: z.int() }), { name: 'trip', method: 'jsonSchema' })
    return t.checkObject(await plan.invoke('Plan a trip to Paris.'))
  },
  async image() {
    const content = [{ type: 'text', text: 'What is it?' }, { type: 'image_url', image_url: { url: t.image } }]
    assert.equal((await model.invoke([new HumanMessage({ content })])).text, t.seenImage)
  },
  async 'several choices'() {
    const { generations } = await chatWith({ n: 2 }).generate([[new HumanMessage('Hello')]])
    assert.equal(generations[0].length, 2)
    assert.notEqual(generations[0][0].text, generations[0][1].text)
  },
  async logprobs() {
    const answer = await chatWith({ logprobs: true, topLogprobs: 1 }).invoke('Hello')
    assert.equal(answer.response_metadata.logprobs.content[0].logprob, -0.5)
  },
  async embeddings() {
    const vectors = await new OpenAIEmbeddings({ model: 'large', apiKey: t.apiKey, dimensions: 8, configuration: { baseURL: t.baseURL } }).embedDocuments(['a red lamp', 'a blue chair'])
    assert.deepEqual(vectors.map((v) => v.length), [8, 8])
    assert.notDeepEqual(vectors[0], vectors[1])
  },
  async 'unknown model'() {
    const e = await t.failure(chatWith({ model: 'huge' }).invoke('Hello'))
    assert.deepEqual([e.status, e.code, e.param, e.lc_error_code], [404, 'model_not_found', 'model', 'MODEL_NOT_FOUND'])
    assert.match(e.message, /the model "huge" does not exist/)
    return e.message
  },
  async 'wrong key'() {
    const e = await t.failure(chatWith({ apiKey: 'sk-wrong' }).invoke('Hello'))
    assert.deepEqual([e.status, e.code, e.lc_error_code], [401, 'invalid_api_key', 'MODEL_AUTHENTICATION'])
    return e.message
  },
  async 'unknown parameter'() {
    const e = await t.failure(chatWith({ modelKwargs: { top_a: 1 } }).invoke('Hello'))
    assert.deepEqual([e.status, e.code, e.param], [400, 'unknown_parameter', 'top_a'])
    return e.message
  },
  async abort() {
    const leave = new AbortController()
    let text = ''
    const e = await t.failure((async () => {
      for await (const chunk of await model.stream(t.HANG, { signal: leave.signal })) if ((text += chunk.text) === t.PART) leave.abort()
    })())
    assert.equal(text, t.PART)
    return `${e.name}; ${(await model.invoke(t.LEFT)).text}`
  },
  async 'error in a stream'() {
    let text = ''
    const e = await t.failure((async () => {
      for await (const chunk of await model.stream(t.CUT)) text += chunk.text
    })())
    assert.equal(text, t.PART)
    assert.match(e.message, /closed the connection/)
    return e.message
  },
  async 'retry after 429'() {
    const counted = t.count()
    await chatWith({ fetch: counted.fetch }).invoke(t.LIMITED)
    return t.checkRetry(counted.requests, 429, false) // it has times of its own
  },
  async 'retry after 5xx'() {
    const counted = t.count()
    await chatWith({ fetch: counted.fetch }).invoke(t.FAILING)
    assert.deepEqual(counted.requests.map((r) => r.status), [502, 200])
  },
})
