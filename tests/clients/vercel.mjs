// What users of the Vercel provider do: `node vercel.mjs ADDRESS MODEL`. What is not as it should be is thrown. The
// model plays the script that test_vercel_provider.py gives it.

import assert from "node:assert/strict";
import { convertToAiSdkMessage, createLetta } from "@letta-ai/vercel-ai-sdk-provider";
import { generateText, streamText } from "ai";

const [baseUrl, model] = process.argv.slice(2);
const letta = createLetta({ baseUrl, token: "none" });
const HELLO = "Hello from the model";
const ada = { label: "human", value: "Name: Ada" };

const options = (agent, more = {}) => ({ providerOptions: { letta: { agent: { id: agent.id, ...more } } } });
const asked = (agent, prompt, more = {}) => ({ model: letta(), prompt, ...options(agent, more) });

async function streamed(agent, prompt, more) {
  const tools = { core_memory_append: letta.tool("core_memory_append") };
  const parts = [];
  for await (const part of streamText({ ...asked(agent, prompt, more), tools }).fullStream) parts.push(part);
  const failed = parts.filter((part) => part.type === "error");
  assert.deepEqual(failed, []);
  return parts;
}

const of = (parts, type) => parts.filter((part) => part.type === type);

// An agent, made by the client that the provider holds, answers at once and in a stream.
const made = { model, memoryBlocks: [ada], tools: ["core_memory_append"], includeBaseTools: false };
const agent = await letta.client.agents.create(made);
assert.match(agent.id, /^agent-/);
const { text } = await generateText(asked(agent, "hello"));
assert.equal(text, HELLO);
const words = of(await streamed(agent, "hello", { streamTokens: true }), "text-delta");
assert.ok(words.length > 1);
assert.equal(words.map((each) => each.text).join(""), HELLO);

// A tool of the agent runs on the server, and the stream shows its call and its result.
const used = await streamed(agent, "remember that I sail", { streamTokens: true });
assert.deepEqual(of(used, "tool-call").map((each) => [each.toolName, each.input.content]), [["core_memory_append", "Sails"]]);
assert.equal(of(used, "text-delta").map((each) => each.text).join(""), "Noted");
assert.match((await letta.client.agents.blocks.retrieve(agent.id, "human")).value, /Sails/);

// The provider knows no approvals: its stream ends. The client that it holds shows the request and answers it.
await letta.client.agents.tools.modifyApproval(agent.id, "core_memory_append", { requiresApproval: true });
assert.deepEqual(of(await streamed(agent, "remember that I ski", {}), "text-delta"), []);
const [waiting] = await letta.client.agents.messages.list(agent.id, { limit: 1, order: "desc" });
assert.deepEqual([waiting.messageType, waiting.toolCall.name], ["approval_request_message", "core_memory_append"]);
const approval = { type: "approval", approve: true, approvalRequestId: waiting.id };
const { messages } = await letta.client.agents.messages.create(agent.id, { messages: [approval] });
assert.deepEqual(messages.map((each) => each.messageType), ["tool_return_message", "assistant_message"]);
assert.match((await letta.client.agents.blocks.retrieve(agent.id, "human")).value, /Skis/);

// A background stream that was left is read on from where it was left.
const background = { background: true, streamTokens: true };
const left = streamText(asked(agent, "hello", background)).fullStream;
let seen;
for await (const part of left) {
  if (part.type !== "text-delta") continue;
  seen = part;
  break;
}
const { runId, seqId } = seen.providerMetadata.letta;
const rest = [];
for await (const event of await letta.client.runs.stream(runId, { startingAfter: seqId })) rest.push(event);
const later = rest.filter((each) => each.messageType === "assistant_message");
assert.ok(later.every((each) => each.seqId > seqId));
assert.equal(seen.text + later.map((each) => each.content).join(""), HELLO);
assert.equal((await letta.client.runs.retrieve(runId)).status, "completed");

// The history as the AI SDK shows it.
const history = convertToAiSdkMessage(await letta.client.agents.messages.list(agent.id, { order: "asc" }));
assert.ok(history.some((each) => each.role === "user") && history.some((each) => each.role === "assistant"));

console.log("done");
