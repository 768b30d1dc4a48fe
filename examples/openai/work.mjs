import { randomUUID } from 'node:crypto'

// What the programs have in common: they ask about a topic until they have their answers, and print how many were complete. The clients read
// the address and the key: OPENAI_BASE_URL, OPENAI_API_KEY.
export const { OPENAI_BASE_URL: baseURL = 'http://127.0.0.1:8080/openai/v1', OPENAI_API_KEY: apiKey, MODEL: model = 'deepseek-chat' } = process.env
const { CALLS = '10', AT_ONCE = '1', TOPIC = 'rivers' } = process.env

// maxTokens bounds an answer, and so what berth reserves for it.
export const maxTokens = 40

// work gets CALLS answers: ask makes the calls for one question, and returns how many complete answers it got; most has that of a question. With its
// headers, all requests for a question are one call with durable keys. What the clients of OpenAI repeat is one call without them, too.
export async function work(name, ask, most = 1) {
  let asked = 0
  let complete = 0
  const questions = Number(CALLS) / most
  const worker = async () => {
    while (asked < questions) {
      const question = `Explain ${TOPIC}, part ${++asked}.`
      try {
        complete += await ask(question, { 'Idempotency-Key': randomUUID() })
      } catch (error) {
        console.error(`${name}: ${question} ${error}`)
      }
    }
  }
  await Promise.all(Array.from({ length: Number(AT_ONCE) }, worker))
  console.log(`${name}: ${complete} of ${CALLS} answers are complete`)
}

// again repeats a streamed call that broke off: the clients repeat only calls of which nothing has come.
export async function again(call, times = 3) {
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if (--times === 0) throw error
    }
  }
}
