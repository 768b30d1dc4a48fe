// What the programs of the clients have in common: they get the address of berth and a key, and print one line of JSON per feature.
import assert from 'node:assert/strict'

export const { BERTH_URL: baseURL, BERTH_KEY: apiKey } = process.env

// The provider of the test answers as the simulator, but for messages with one of these words: see clientProvider in clients_test.go.
export const HANG = '[hang]' // a part of an answer, then nothing
export const CUT = '[cut]' // a part of an answer, then the end of the connection
export const LIMITED = '[limited]' // the first calls are refused with 429
export const FAILING = '[failing]' // the first calls are refused with 500
export const LEFT = '[left]' // answers once the caller of HANG has left
export const PART = 'The ans'
export const image = 'data:image/png;base64,iVBORw0KGgo='
export const seenImage = 'The image is ' + image

export const schema = {
  type: 'object',
  properties: { city: { type: 'string' }, days: { type: 'integer' } },
  required: ['city', 'days'],
  additionalProperties: false,
}

export function checkObject(object) {
  assert.deepEqual(Object.keys(object).sort(), ['city', 'days'])
  assert.equal(typeof object.city, 'string')
  assert.ok(Number.isInteger(object.days))
  return JSON.stringify(object)
}

// count returns a fetch that records the requests.
export function count() {
  const requests = []
  const counted = async (url, init) => {
    const request = { at: Date.now() }
    requests.push(request)
    const response = await fetch(url, init)
    request.answered = Date.now()
    request.status = response.status
    request.retryAfter = Number(response.headers.get('retry-after-ms'))
    return response
  }
  return { requests, fetch: counted }
}

// checkRetry requires that a call was refused once, and made again; after the time that the refusal names if the client honours it.
// That is longer than what a client waits by itself.
export function checkRetry(requests, status, honoured = true) {
  assert.deepEqual(requests.map((r) => r.status), [status, 200])
  const [{ answered, retryAfter }, { at }] = requests
  assert.ok(retryAfter > 2000, `retry after ${retryAfter} ms`)
  if (honoured) assert.ok(at - answered > retryAfter - 50, `retried after ${at - answered} ms, asked for ${retryAfter} ms`)
  return `retried after ${at - answered} ms, asked for ${retryAfter} ms`
}

// failure returns the error of a promise, which must be rejected.
export async function failure(promise) {
  try {
    await promise
  } catch (e) {
    return e
  }
  throw new assert.AssertionError({ message: 'no error' })
}

// run runs the features one after another, because some make the provider fail.
export async function run(features) {
  for (const [feature, f] of Object.entries(features)) {
    const line = { feature, ok: true }
    try {
      line.detail = String((await f()) ?? '')
    } catch (e) {
      line.ok = false
      line.detail = e?.stack ?? String(e)
    }
    console.log(JSON.stringify(line))
  }
}
