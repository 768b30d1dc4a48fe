// Makes calls of each kind with four clients of OpenAI's protocol, and prints what worked. Exits with 1 if something did not.
// Each client is configured by its base URL and key alone.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { embedMany, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import assert from "node:assert/strict";
import OpenAI from "openai";
import { z } from "zod";

const baseURL = process.env.OPENAI_BASE_URL ?? "http://127.0.0.1:8080/openai/v1";
const apiKey = process.env.OPENAI_API_KEY ?? "";
const model = process.env.MODEL ?? "deepseek-chat";
const vectors = process.env.EMBEDDING_MODEL ?? model;

const openai = new OpenAI({ baseURL, apiKey });
const berth = createOpenAICompatible({ name: "berth", baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true });
const langchain = new ChatOpenAI({ model, apiKey, configuration: { baseURL } });
const langchainVectors = new OpenAIEmbeddings({ model: vectors, apiKey, configuration: { baseURL } });

const question = "What is the weather in Paris? Use get_weather.";
const messages = [{ role: "user", content: question }];
const weather = ({ city }) => `It is sunny in ${city}, 21 degrees.`;
const city = z.object({ city: z.string() });
const schema = z.object({ title: z.string(), words: z.number() });
const openaiTools = [{ type: "function", function: { name: "get_weather", description: "Returns the weather of a city", parse: JSON.parse, function: weather,
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } }];
const aiTools = { get_weather: tool({ description: "Returns the weather of a city", inputSchema: city, execute: weather }) };

const join = async (parts) => {
  let text = "";
  for await (const part of parts) text += typeof part === "string" ? part : part.content;
  return text;
};

const calls = {
  "openai: chat": async () => assert.ok((await openai.chat.completions.create({ model, messages })).choices[0].message.content),
  "openai: stream with usage": async () => {
    const answer = await openai.chat.completions.stream({ model, messages, stream_options: { include_usage: true } }).finalChatCompletion();
    assert.ok(answer.choices[0].message.content);
    assert.ok(answer.usage.total_tokens > 0);
  },
  "openai: several choices": async () => assert.equal((await openai.chat.completions.create({ model, messages, n: 2 })).choices.length, 2),
  "openai: tools": async () => assert.match(await openai.chat.completions.runTools({ model, messages, tools: openaiTools }).finalContent(), /sunny/i),
  "openai: tools in a stream": async () =>
    assert.match(await openai.chat.completions.runTools({ model, messages, tools: openaiTools, stream: true }).finalContent(), /sunny/i),
  "openai: structured output": async () => {
    const response_format = { type: "json_schema", json_schema: { name: "title", schema: z.toJSONSchema(schema) } };
    schema.parse(JSON.parse((await openai.chat.completions.create({ model, messages, response_format })).choices[0].message.content));
  },
  "openai: embeddings": async () => assert.equal((await openai.embeddings.create({ model: vectors, input: ["a lamp", "a chair"] })).data.length, 2),
  "openai: models": async () => assert.ok((await openai.models.list()).data.length > 0),
  "openai: error": async () =>
    assert.rejects(openai.chat.completions.create({ model, messages: [] }), (e) => e.status === 400 && e.param === "messages"),
  "openai: abort": async () => {
    const stream = await openai.chat.completions.create({ model, messages, stream: true });
    for await (const _ of stream) stream.controller.abort();
    assert.ok(stream.controller.signal.aborted);
  },
  "ai: text": async () => assert.ok((await generateText({ model: berth(model), prompt: question })).usage.totalTokens > 0),
  "ai: stream": async () => assert.ok(await join(streamText({ model: berth(model), prompt: question }).textStream)),
  "ai: tools": async () => {
    const answer = await generateText({ model: berth(model), prompt: question, tools: aiTools, stopWhen: stepCountIs(3) });
    assert.match(answer.text, /sunny/i);
  },
  "ai: tools in a stream": async () =>
    assert.match(await join(streamText({ model: berth(model), prompt: question, tools: aiTools, stopWhen: stepCountIs(3) }).textStream), /sunny/i),
  "ai: structured output": async () => schema.parse((await generateObject({ model: berth(model), schema, prompt: question })).object),
  "ai: embeddings": async () => assert.equal((await embedMany({ model: berth.textEmbeddingModel(vectors), values: ["a lamp", "a chair"] })).embeddings.length, 2),
  "langchain: text": async () => assert.ok((await langchain.invoke(question)).content),
  "langchain: stream": async () => assert.ok(await join(await langchain.stream(question))),
  "langchain: tools": async () => {
    const get_weather = langchainTool(weather, { name: "get_weather", description: "Returns the weather of a city", schema: city });
    city.parse((await langchain.bindTools([get_weather]).invoke(question)).tool_calls[0].args);
  },
  "langchain: structured output": async () => schema.parse(await langchain.withStructuredOutput(schema).invoke(question)),
  "langchain: embeddings": async () => assert.ok((await langchainVectors.embedQuery("a lamp")).length > 0),
};

for (const [name, call] of Object.entries(calls)) {
  try {
    await call();
    console.log(`ok    ${name}`);
  } catch (error) {
    console.log(`FAIL  ${name}: ${error.message}`);
    process.exitCode = 1;
  }
}
