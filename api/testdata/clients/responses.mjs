// The responses of the client openai of OpenAI.
import assert from 'node:assert/strict'
import OpenAI from 'openai'
import { zodTextFormat } from 'openai/helpers/zod'
import { z } from 'zod'
import * as t from './run.mjs'

const client = new OpenAI({ baseURL: t.baseURL, apiKey: t.apiKey })
const create = (input, more) => client.responses.create({ model: 'large', input, ...more })
const tools = [{ type: 'function', name: 'get_weather', strict: false, parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } }]

// ended returns a response in the background once it has ended.
async function ended(id) {
  for (;;) {
    const response = await client.responses.retrieve(id)
    if (!['queued', 'in_progress'].includes(response.status)) return response
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

await t.run({
  async create() {
    const response = await create('Hello')
    assert.equal(response.object, 'response')
    assert.equal(response.status, 'completed')
    assert.equal(response.model, 'large')
    assert.ok(response.usage.total_tokens > 0)
    assert.deepEqual(await client.responses.retrieve(response.id), response)
    return response.output_text
  },
  async stream() {
    const whole = await create('Hello')
    const stream = client.responses.stream({ model: 'large', input: 'Hello' })
    let text = ''
    for await (const event of stream) if (event.type === 'response.output_text.delta') text += event.delta
    const joined = await stream.finalResponse()
    assert.equal(text, whole.output_text)
    assert.equal(joined.output_text, text)
    assert.equal(joined.usage.total_tokens, whole.usage.total_tokens)
  },
  async background() {
    const queued = await create('Hello', { background: true })
    assert.ok(['queued', 'in_progress'].includes(queued.status))
    const response = await ended(queued.id)
    assert.equal(response.status, 'completed')
    return response.output_text
  },
  async resume() {
    const events = []
    for await (const event of await create('Hello', { background: true, stream: true })) events.push(event)
    events.forEach((event, i) => assert.equal(event.sequence_number, i))
    const { id } = events[0].response
    for (const after of [0, 3, events.length - 2]) {
      const rest = []
      for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: after })) rest.push(event)
      assert.deepEqual(rest, events.slice(after + 1))
    }
    const joined = await client.responses.stream({ response_id: id, starting_after: 0 }).finalResponse()
    assert.equal(joined.id, id)
  },
  async cancel() {
    const queued = await create(t.HANG, { background: true })
    const cancelled = await client.responses.cancel(queued.id)
    assert.equal(cancelled.status, 'cancelled')
    assert.equal((await client.responses.cancel(queued.id)).status, 'cancelled')
    return (await create(t.LEFT)).output_text
  },
  async delete() {
    const { id } = await create('Hello')
    await client.responses.delete(id)
    assert.ok((await t.failure(client.responses.retrieve(id))) instanceof OpenAI.NotFoundError)
  },
  async conversation() {
    const first = await create('My name is Ada.')
    const second = await create('Hello', { previous_response_id: first.id })
    assert.equal(second.previous_response_id, first.id)
    const input = []
    for await (const item of client.responses.inputItems.list(second.id)) input.push(item)
    assert.equal(input.length, 1)
    await client.responses.delete(first.id)
    const e = await t.failure(create('Hello', { previous_response_id: second.id }))
    assert.deepEqual([e.status, e.param, e.code], [400, 'previous_response_id', 'previous_response_not_found'])
    return e.message
  },
  async tools() {
    const question = 'How is the weather in Paris?'
    const first = await create(question, { tools })
    const [call] = first.output.filter((item) => item.type === 'function_call')
    assert.equal(call.name, 'get_weather')
    const streamed = await client.responses.stream({ model: 'large', input: question, tools }).finalResponse()
    assert.equal(streamed.output.find((item) => item.type === 'function_call').arguments, call.arguments)
    const output = { type: 'function_call_output', call_id: call.call_id, output: 'Sunny, 21 degrees' }
    const second = await create([output], { tools, previous_response_id: first.id })
    assert.match(second.output_text, /Sunny, 21 degrees/)
    const again = await create([{ role: 'user', content: question }, ...first.output, output], { tools, store: false })
    assert.match(again.output_text, /Sunny, 21 degrees/)
    return call.arguments
  },
  async 'structured output'() {
    const response = await client.responses.parse({
      model: 'large',
      input: 'Plan a trip to Paris.',
      text: { format: zodTextFormat(z.object({ city: z.string(), days: z.int() }), 'trip') },
    })
    return t.checkObject(response.output_parsed)
  },
  async image() {
    const content = [{ type: 'input_text', text: 'What is it?' }, { type: 'input_image', image_url: t.image, detail: 'auto' }]
    assert.equal((await create([{ role: 'user', content }])).output_text, t.seenImage)
  },
  async 'unknown parameter'() {
    for (const [param, value] of [['top_a', 1], ['conversation', 'conv_1']]) {
      const e = await t.failure(create('Hello', { [param]: value }))
      assert.ok(e instanceof OpenAI.BadRequestError)
      assert.equal(e.param, param)
    }
    const e = await t.failure(create('Hello', { tools: [{ type: 'web_search' }] }))
    assert.match(e.param, /^tools/)
    return e.message
  },
  async 'error in a stream'() {
    const types = []
    let failed
    for await (const event of await create(t.CUT, { stream: true })) {
      types.push(event.type)
      if (event.type === 'response.failed') failed = event.response.error
    }
    assert.equal(types.at(-1), 'response.failed')
    assert.match(failed.message, /closed the connection/)
    return failed.message
  },
})
