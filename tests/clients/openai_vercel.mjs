// The Vercel AI SDK with its OpenAI provider against a live server: `node openai_vercel.mjs <url> <model> <step>`.
// Its default is the responses API, to which it sends the history as items or as references to them.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { embed, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url, model, step] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: `${url}/openai/v1`, apiKey: "none" });
const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const kinds = { chat: openai.chat(model), responses: openai(model) };

const steps = {
  async text(used) {
    const messages = [{ role: "user", content: "hi" }];
    const first = await generateText({ model: used, messages, maxRetries: 0 });
    assert.equal(first.text, "Hello from the model");
    assert.ok(first.usage.totalTokens > 0);
    messages.push(...first.response.messages, { role: "user", content: "again" });
    const second = streamText({ model: used, messages, maxRetries: 0, onError: ({ error }) => { throw error; } });
    let text = "";
    for await (const delta of second.textStream) text += delta;
    assert.equal(text, "Hello-once-more");
    assert.equal(await second.finishReason, "stop");
  },

  async tools(used) {
    const ran = [];
    const get_weather = tool({
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => { ran.push(city); return "rain"; },
    });
    const asked = { model: used, prompt: "weather in Oslo?", tools: { get_weather }, stopWhen: stepCountIs(5) };
    const made = await generateText({ ...asked, maxRetries: 0 });
    assert.equal(made.text, "It rains in Oslo");
    assert.deepEqual(ran, ["Oslo"]);
  },

  async images(used) {
    const content = [{ type: "text", text: "what is this?" }, { type: "image", image: PIXEL, mediaType: "image/png" }];
    const made = await generateText({ model: used, messages: [{ role: "user", content }], maxRetries: 0 });
    assert.equal(made.text, "A pixel");
  },
};

const [name, kind] = step.split("/");
await steps[name](kinds[kind]);
console.log("done");
