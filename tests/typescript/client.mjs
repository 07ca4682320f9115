// What users of the TypeScript client do, one section a run: `node client.mjs SECTION ADDRESS MODEL`. What is not as it
// should be is thrown. The model plays the script that test_typescript.py gives it.

import assert from "node:assert/strict";
import Letta, { toFile, APIError, BadRequestError, ConflictError, NotFoundError, UnprocessableEntityError } from "@letta-ai/letta-client";

const [section, baseURL, model] = process.argv.slice(2);
const client = new Letta({ baseURL, maxRetries: 0 });

const blocks = [{ label: "human", value: "Name: Ada" }];
const made = (more = {}) => client.agents.create({ model, memory_blocks: blocks, include_base_tools: false, ...more });
const types = (messages) => messages.map((each) => each.message_type);
const user = (content) => ({ messages: [{ role: "user", content }] });

async function all(pages) {
  const found = [];
  for await (const each of pages) found.push(each);
  return found;
}

const SOURCE = `
def square(x: int) -> int:
    """Squares a number.

    Args:
        x: the number
    """
    print("squaring")
    return x * x
`;

const sections = {
  async agents() {
    const agent = await made({ name: "typed", tags: ["ts"], description: "d" });
    assert.match(agent.id, /^agent-/);
    assert.deepEqual([agent.name, agent.tags, agent.blocks?.length], ["typed", ["ts"], 1]);
    const changed = await client.agents.update(agent.id, { description: "changed" });
    assert.equal(changed.description, "changed");
    assert.equal((await client.agents.retrieve(agent.id)).description, "changed");
    for (let n = 0; n < 7; n++) await made({ name: `page-${n}`, tags: [model] });
    const listed = await all(client.agents.list({ tags: [model], limit: 3 }));
    assert.equal(new Set(listed.map((each) => each.id)).size, 7, "every page is asked for");
    await client.agents.delete(agent.id);
    await assert.rejects(client.agents.retrieve(agent.id), NotFoundError);
    assert.ok((await client.models.list()).some((each) => each.handle === model));
    assert.equal((await client.health()).status, "ok");
  },

  async messages() {
    const agent = await made();
    const reply = await client.agents.messages.create(agent.id, user("hello"));
    assert.deepEqual(types(reply.messages), ["assistant_message"]);
    assert.deepEqual([reply.messages[0].content, reply.stop_reason.stop_reason], ["Hello from the model", "end_turn"]);
    assert.equal(reply.usage.step_count, 1);
    await client.agents.messages.create(agent.id, { input: "again" });
    const history = await all(client.agents.messages.list(agent.id, { limit: 2, order: "asc" }));
    assert.deepEqual(types(history), ["system_message", "user_message", "assistant_message", "user_message", "assistant_message"]);
    const runs = await all(client.runs.list({ agent_id: agent.id }));
    assert.deepEqual(runs.map((each) => each.status), ["completed", "completed"]);
    assert.equal((await all(client.runs.steps.list(runs[0].id))).length, 1);
  },

  async streams() {
    const agent = await made();
    for (const stream_tokens of [false, true]) {
      const seen = [];
      const body = { ...user("hello"), stream_tokens, include_pings: false };
      for await (const event of await client.agents.messages.stream(agent.id, body)) seen.push(event);
      const words = seen.filter((each) => each.message_type === "assistant_message").map((each) => each.content);
      assert.equal(words.join("").replaceAll(" ", ""), "Hellofromthemodel");
      assert.ok(stream_tokens ? words.length > 1 : words.length === 1);
      assert.deepEqual(types(seen).slice(-2), ["stop_reason", "usage_statistics"]);
    }
    const early = await client.agents.messages.stream(agent.id, { ...user("leave"), stream_tokens: true });
    for await (const event of early) if (event.message_type === "assistant_message") break;
    const after = await client.agents.messages.create(agent.id, user("still there?"));
    assert.equal(after.messages.at(-1).content, "Still here");
  },

  async background() {
    const agent = await made();
    const body = { ...user("hello"), background: true, stream_tokens: true, include_pings: false };
    const ids = [];
    for await (const event of await client.agents.messages.stream(agent.id, body)) {
      ids.push([event.run_id, event.seq_id]);
      if (event.message_type === "assistant_message") break;
    }
    const [run, seen] = ids.at(-1);
    const rest = [];
    for await (const event of await client.runs.messages.stream(run, { starting_after: seen })) rest.push(event);
    assert.ok(rest.every((each) => each.seq_id === undefined || each.seq_id === null || each.seq_id > seen));
    assert.deepEqual(types(rest).slice(-2), ["stop_reason", "usage_statistics"]);
    assert.equal((await client.runs.retrieve(run)).status, "completed");
    const later = await client.agents.messages.createAsync(agent.id, user("later"));
    for (let n = 0; n < 600 && (await client.runs.retrieve(later.id)).status !== "completed"; n++)
      await new Promise((done) => setTimeout(done, 50));
    assert.deepEqual(types(await all(client.runs.messages.list(later.id))), ["user_message", "assistant_message"]);
  },

  async tools() {
    const tool = await client.tools.upsert({ source_code: SOURCE });
    assert.deepEqual([tool.name, tool.json_schema.parameters.required], ["square", ["x"]]);
    const agent = await made({ tool_ids: [tool.id] });
    const reply = await client.agents.messages.create(agent.id, user("square 7"));
    assert.deepEqual(types(reply.messages), ["tool_call_message", "tool_return_message", "assistant_message"]);
    assert.deepEqual([reply.messages[1].tool_return, reply.messages[1].stdout], ["49", ["squaring\n"]]);
    const byHand = await client.agents.tools.run("square", { agent_id: agent.id, args: { x: 12 } });
    assert.deepEqual([byHand.status, byHand.func_return], ["success", 144]);
    await client.agents.tools.detach(tool.id, { agent_id: agent.id });
    assert.deepEqual(await all(client.agents.tools.list(agent.id)), []);
    await assert.rejects(client.tools.create({ source_code: "def f(:\n  pass" }), BadRequestError);
    await client.tools.delete(tool.id);
    await assert.rejects(client.tools.retrieve(tool.id), NotFoundError);
  },

  async approvals() {
    const tool = await client.tools.upsert({ source_code: SOURCE, default_requires_approval: true });
    const agent = await made({ tool_ids: [tool.id] });
    const asked = await client.agents.messages.create(agent.id, user("square 5"));
    assert.deepEqual([types(asked.messages), asked.stop_reason.stop_reason], [["approval_request_message"], "requires_approval"]);
    await assert.rejects(client.agents.messages.create(agent.id, user("well?")), ConflictError);
    const call = asked.messages[0].tool_call;
    const approvals = [{ type: "approval", approve: true, tool_call_id: call.tool_call_id }];
    const done = await client.agents.messages.create(agent.id, { messages: [{ type: "approval", approvals }] });
    assert.deepEqual(types(done.messages), ["tool_return_message", "assistant_message"]);
    assert.equal(done.messages[0].tool_return, "25");
  },

  async clientTools() {
    const parameters = { type: "object", properties: { at: { type: "string" } }, required: ["at"] };
    const client_tools = [{ name: "look", description: "Looks on this machine", parameters }];
    const agent = await made();
    const body = { ...user("look at the sea"), client_tools, stream_tokens: true, include_pings: false };
    const seen = [];
    for await (const event of await client.agents.messages.stream(agent.id, body)) seen.push(event);
    const asked = seen.filter((each) => each.message_type === "approval_request_message");
    assert.equal(seen.find((each) => each.message_type === "stop_reason").stop_reason, "requires_approval");
    const { name, tool_call_id } = asked[0].tool_call;
    const told = asked.map((each) => each.tool_call.arguments ?? "").join("");
    assert.deepEqual([name, JSON.parse(told)], ["look", { at: "sea" }]);
    const answer = { type: "tool", tool_call_id, tool_return: "waves", status: "success" };
    const approval = { messages: [{ type: "approval", approvals: [answer] }], client_tools };
    const done = await client.agents.messages.create(agent.id, approval);
    assert.deepEqual(types(done.messages), ["tool_return_message", "assistant_message"]);
    assert.deepEqual([done.messages[0].tool_return, done.messages[1].content], ["waves", "Waves, then"]);
  },

  async memory() {
    const agent = await made();
    await client.agents.blocks.update("human", { agent_id: agent.id, value: "Name: Bea" });
    assert.equal((await client.agents.blocks.retrieve("human", { agent_id: agent.id })).value, "Name: Bea");
    const shared = await client.blocks.create({ label: "project", value: "Boats" });
    await client.agents.blocks.attach(shared.id, { agent_id: agent.id });
    assert.deepEqual((await all(client.agents.blocks.list(agent.id))).map((each) => each.label).sort(), ["human", "project"]);
    const [passage] = await client.agents.passages.create(agent.id, { text: "The spare key is under the blue pot", tags: ["home"] });
    const found = await client.agents.passages.search(agent.id, { query: "spare key" });
    assert.deepEqual([found.count, found.results[0].content], [1, "The spare key is under the blue pot"]);
    const archive = await client.archives.create({ name: "shared" });
    const stored = await client.archives.passages.create(archive.id, { text: `Ships of ${model} sail at dawn` });
    assert.equal(stored.archive_id, archive.id);
    const everywhere = await client.passages.search({ query: `dawn ${model}` });
    assert.equal(everywhere[0].passage.id, stored.id);
    await client.agents.passages.delete(passage.id, { agent_id: agent.id });
    assert.deepEqual(await client.agents.passages.list(agent.id), []);
  },

  async conversations() {
    const agent = await made();
    const conversation = await client.conversations.create({ agent_id: agent.id });
    const seen = [];
    for await (const event of await client.conversations.messages.create(conversation.id, { ...user("hello"), include_pings: false }))
      seen.push(event);
    assert.deepEqual(types(seen), ["assistant_message", "stop_reason", "usage_statistics"]);
    const said = await all(client.conversations.messages.list(conversation.id, { order: "asc" }));
    assert.deepEqual(types(said).slice(-2), ["user_message", "assistant_message"]);
    assert.deepEqual((await client.conversations.list({ agent_id: agent.id })).map((each) => each.id), [conversation.id]);
    const own = await all(client.agents.messages.list(agent.id, { conversation_id: "default" }));
    assert.deepEqual(types(own), ["system_message"], "the agent's own conversation is another one");
  },

  async agentFiles() {
    const agent = await made({ name: "filed", secrets: { KEY: "hidden" } });
    await client.agents.messages.create(agent.id, user("hello"));
    const document = await client.agents.exportFile(agent.id);
    assert.deepEqual(document.agents[0].secrets, { KEY: "" });
    const file = await toFile(Buffer.from(JSON.stringify(document)), "filed.af");
    const { agent_ids } = await client.agents.importFile({ file, name: "copy", secrets: '{"KEY": "new"}' });
    const copy = await client.agents.retrieve(agent_ids[0], { include: ["agent.blocks", "agent.secrets"] });
    assert.deepEqual([copy.name, copy.blocks[0].value, copy.secrets[0].value], ["copy", "Name: Ada", "new"]);
    const said = await all(client.agents.messages.list(copy.id, { order: "asc" }));
    assert.deepEqual(types(said), ["system_message", "user_message", "assistant_message"]);
    const bare = await client.agents.importFile({ file, strip_messages: true });
    assert.equal((await client.agents.retrieve(bare.agent_ids[0])).message_ids.length, 1);
    const cut = await toFile(Buffer.from(JSON.stringify(document).slice(0, -9)), "cut.af");
    await assert.rejects(client.agents.importFile({ file: cut }), BadRequestError);
  },

  async templates() {
    const agent = await made({ memory_blocks: [{ label: "human", value: "Name: {{name}}" }] });
    const name = `ts-${agent.id.slice(-12)}`;
    const template = await client.templates.create({ type: "agent", agent_id: agent.id, name });
    assert.equal(template.latest_version, "1");
    const file = await client.agents.exportFile(agent.id);
    file.blocks[0].value = "Called {{name}}";
    assert.ok((await client.templates.update(name, { agent_file_json: file })).success);
    assert.equal((await client.templates.save(name)).latest_version, "2");
    assert.ok((await client.templates.rollback(name, { version: "1" })).success);
    const deployed = await client.templates.agents.create(`${name}:latest`, { memory_variables: { name: "Ann" } });
    assert.equal((await client.agents.blocks.retrieve("human", { agent_id: deployed.agent_ids[0] })).value, "Called Ann");
    const slug = template.template_deployment_slug;
    const first = await client.templates.agents.create(slug, { memory_variables: { name: "Bo" }, agent_name: "bo" });
    assert.equal((await client.agents.blocks.retrieve("human", { agent_id: first.agent_ids[0] })).value, "Name: Bo");
    assert.ok((await client.templates.delete(name)).success);
    const [device] = (await client.environments.list()).connections;
    assert.equal((await client.environments.retrieve(device.deviceId)).id, device.id);
    await assert.rejects(client.environments.sendMessage(device.connectionId, { messages: [] }), NotFoundError);
  },

  async folders() {
    const agent = await made();
    const folder = await client.folders.create({ name: `ts-${agent.id.slice(-12)}`, description: "notes" });
    assert.equal((await client.folders.retrieve(folder.id)).description, "notes");
    const text = "The lighthouse of Westhaven is 41 metres high.";
    const sent = await client.folders.files.upload(folder.id, { file: await toFile(Buffer.from(text), "notes.txt") });
    let file = sent;
    const end = Date.now() + 60_000;
    while (file.processing_status !== "completed") {
      assert.ok(Date.now() < end && file.processing_status !== "error", `${file.processing_status} ${file.error_message}`);
      file = await client.folders.files.retrieve(sent.id, { folder_id: folder.id, include_content: true });
    }
    file = await client.folders.files.retrieve(sent.id, { folder_id: folder.id, include_content: true });
    assert.match(file.content, /41 metres/);
    assert.deepEqual((await all(client.folders.files.list(folder.id))).map((each) => each.id), [sent.id]);
    await client.agents.folders.attach(folder.id, { agent_id: agent.id });
    assert.deepEqual((await all(client.agents.folders.list(agent.id))).map((each) => each.id), [folder.id]);
    assert.deepEqual(await client.folders.agents.list(folder.id), [agent.id]);
    const opened = await client.agents.files.open(sent.id, { agent_id: agent.id });
    assert.ok(Array.isArray(opened));
    const [seen] = await all(client.agents.files.list(agent.id));
    assert.deepEqual([seen.file_id, seen.is_open], [sent.id, true]);
    await client.agents.files.close(sent.id, { agent_id: agent.id });
    assert.deepEqual(await client.agents.files.closeAll(agent.id), []);
    assert.equal((await client.folders.update(folder.id, { description: "changed" })).description, "changed");
    await client.agents.folders.detach(folder.id, { agent_id: agent.id });
    await client.folders.files.delete(sent.id, { folder_id: folder.id });
    await assert.rejects(client.folders.files.retrieve(sent.id, { folder_id: folder.id }), NotFoundError);
    await client.folders.delete(folder.id);
    await assert.rejects(client.folders.retrieve(folder.id), NotFoundError);
  },

  async schedules() {
    const agent = await made();
    const time = { type: "recurring", cron_expression: "0 9 * * 1" };
    const schedule = await client.agents.schedule.create(agent.id, { ...user("report"), schedule: time });
    assert.ok(schedule.next_scheduled_at);
    assert.deepEqual((await client.agents.schedule.retrieve(schedule.id, { agent_id: agent.id })).schedule, time);
    assert.equal((await client.agents.schedule.list(agent.id)).scheduled_messages.length, 1);
    assert.ok((await client.agents.schedule.delete(schedule.id, { agent_id: agent.id })).success);
  },

  async errors() {
    await assert.rejects(client.agents.retrieve("agent-00000000-0000-4000-8000-000000000000"), (error) => {
      assert.ok(error instanceof NotFoundError && error instanceof APIError);
      return error.status === 404 && typeof error.error.detail === "string";
    });
    await assert.rejects(made({ model: "nobody/nothing" }), (error) => error.status >= 400 && error.status < 500);
    await assert.rejects(made({ context_window_limit: "wide" }), UnprocessableEntityError);
    const agent = await made();
    await assert.rejects(client.agents.messages.create(agent.id, { messages: [] }), (error) => error.status >= 400 && error.status < 500);
  },
};

await sections[section]();
console.log("done");
