// Verifies an event that a webhook has received with the official client: {body, headers, secret} on standard input. Prints its type and the id of
// what it is about.
import OpenAI from "openai";
import { text } from "node:stream/consumers";

const { body, headers, secret } = JSON.parse(await text(process.stdin));
const client = new OpenAI({ apiKey: "none", webhookSecret: secret });
const event = await client.webhooks.unwrap(body, headers);
console.log(JSON.stringify({ type: event.type, id: event.data.id }));
