// The backend of a page that shows a report while a model writes it, also after a reload. The API key stays here: the page gets a ticket for each
// connection, which reads the events of one response for some seconds, and nothing else.
//
//   node page/server.mjs, and open http://127.0.0.1:8090
import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import OpenAI from 'openai'
import { baseURL, model } from '../work.mjs'

const { PORT = '8090' } = process.env
const client = new OpenAI({ baseURL })
const owners = new Map() // of responses: their session; a database in an application

const routes = {
  async 'GET /'() {
    return { type: 'text/html; charset=utf-8', body: await readFile(new URL('index.html', import.meta.url)) }
  },
  async 'POST /reports'({ session, input }) {
    const { id } = await client.responses.create({ model, input, background: true })
    owners.set(id, session)
    return { body: JSON.stringify({ id }) }
  },
  async 'POST /tickets'({ session, id }) {
    if (!owners.has(id) || owners.get(id) !== session) return { status: 404, body: '{}' }
    const { url } = await client.post(`/responses/${id}/ticket`)
    return { body: JSON.stringify({ url: new URL(url, baseURL) }) }
  },
}

createServer(async (request, response) => {
  let answer = { status: 404, body: '{}' }
  const session = /(?:^|; )session=([\w-]+)/.exec(request.headers.cookie)?.[1] ?? randomUUID()
  try {
    let body = ''
    for await (const part of request) body += part
    const route = routes[`${request.method} ${request.url}`]
    if (route) answer = await route({ ...JSON.parse(body || '{}'), session })
  } catch (error) {
    console.error(error.message)
    answer = { status: 502, body: '{}' }
  }
  const { status = 200, type = 'application/json', body } = answer
  response.writeHead(status, { 'Content-Type': type, 'Cache-Control': 'no-store', 'Set-Cookie': `session=${session}; HttpOnly; SameSite=Strict; Path=/` })
  response.end(body)
}).listen(Number(PORT), '127.0.0.1', () => console.log(`open http://127.0.0.1:${PORT}`))
