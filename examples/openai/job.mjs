// A job in the background that survives the crash of this program. Run it again, here or where its file is: it continues where it was.
//
//   node job.mjs report.json 'Write a report about rivers.'
import { randomUUID } from 'node:crypto'
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import OpenAI from 'openai'
import { baseURL, model } from './work.mjs'

const client = new OpenAI({ baseURL })
const [file, input = 'Write a report about rivers.'] = process.argv.slice(2)

// What is known of the job. Its key is stored before the request is sent: the same request with it returns the same response.
const job = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : { key: randomUUID(), request: { model, input, background: true }, after: -1, text: '' }
const save = () => {
  writeFileSync(`${file}.new`, JSON.stringify(job))
  renameSync(`${file}.new`, file) // a crash leaves a whole file
}

if (!job.id) {
  save()
  const { id } = await client.responses.create(job.request, { headers: { 'Idempotency-Key': job.key } })
  job.id = id
  save()
}
console.error(`${job.id}: continues after event ${job.after}`)
while (!job.status) {
  try {
    const starting_after = job.after < 0 ? undefined : job.after
    for await (const event of await client.responses.retrieve(job.id, { stream: true, starting_after })) {
      if (event.type === 'error') break // the rest comes on another connection
      job.after = event.sequence_number
      if (event.type === 'response.output_text.delta') job.text += event.delta
      if (['response.completed', 'response.incomplete', 'response.failed', 'response.cancelled'].includes(event.type)) {
        const next = event.response.replaced_by // by a key with replaceResponses: the answer is made again from its beginning
        if (next) Object.assign(job, { id: next, after: -1, text: '' })
        else Object.assign(job, { status: event.response.status, error: event.response.error })
      }
      save()
    }
  } catch (error) {
    if (error.status < 500 && error.status !== 429) throw error // such as 404: it does not get better
    console.error(`${job.id}: after event ${job.after}: ${error.message}`)
  }
  if (!job.status) await setTimeout(1000)
}
console.log(job.text)
if (job.status !== 'completed') {
  console.error(`${job.id}: ${job.status}`, job.error?.message ?? '')
  process.exitCode = 1
}
