// The `openai` package for Node against a live server: `node openai_node.mjs <url> <model> <step>`.
// The model of the server is scripted by the test, step by step; each step prints what the next one needs.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [url, model, step, given] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/openai/v1`, apiKey: "none", maxRetries: 0 });
const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

const steps = {
  async chat() {
    const messages = [{ role: "user", content: "hi" }];
    const made = await client.chat.completions.create({ model, messages });
    assert.equal(made.choices[0].message.content, "Hello from the model");
    assert.equal(made.choices[0].finish_reason, "stop");
    assert.ok(made.usage.total_tokens > 0);
    messages.push(made.choices[0].message, { role: "user", content: "again" });
    const stream = client.chat.completions.stream({ model, messages, stream_options: { include_usage: true } });
    assert.equal(await stream.finalContent(), "Hello-once-more");
    assert.ok((await stream.totalUsage()).total_tokens > 0);
  },

  async tools() {
    const ran = [];
    const runner = client.chat.completions.runTools({
      model,
      messages: [{ role: "user", content: "weather in Oslo?" }],
      tools: [
        {
          type: "function",
          function: { name: "get_weather", description: "The weather.", parameters, parse: JSON.parse,
            function: ({ city }) => { ran.push(city); return "rain"; } },
        },
      ],
    });
    assert.equal(await runner.finalContent(), "It rains in Oslo");
    assert.deepEqual(ran, ["Oslo"]);
  },

  async images() {
    const content = [{ type: "text", text: "what is this?" }, { type: "image_url", image_url: { url: PIXEL } }];
    const made = await client.chat.completions.create({ model, messages: [{ role: "user", content }] });
    assert.equal(made.choices[0].message.content, "A pixel");
  },

  async begin() {
    const made = await client.responses.create({ model, input: "hi" });
    assert.equal(made.output_text, "First");
    console.log(made.id);
  },

  async goOn() {
    assert.equal((await client.responses.retrieve(given)).output_text, "First");
    const stream = client.responses.stream({ model, input: "go on", previous_response_id: given });
    let text = "";
    stream.on("response.output_text.delta", (event) => { text += event.delta; });
    const made = await stream.finalResponse();
    assert.equal(made.status, "completed");
    assert.equal(made.output_text, "Second");
    assert.equal(text, "Second");
  },

  async models() {
    for (const base of [`${url}/openai/v1`, `${url}/v1`]) {
      const found = [];
      for await (const one of new OpenAI({ baseURL: base, apiKey: "none" }).models.list()) found.push(one.id);
      assert.ok(found.includes(model), found.join(", "));
    }
    await assert.rejects(
      client.chat.completions.create({ model: "nobody", messages: [{ role: "user", content: "hi" }] }),
      (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found",
    );
  },
};

await steps[step]();
console.log("done");
