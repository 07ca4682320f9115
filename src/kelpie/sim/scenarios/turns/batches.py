"""Batches while models time out, writes fail, the power goes around every commit, and clients vanish or cancel.

Each item ends with exactly one outcome, its message is heard at most once and in its order, one that fails leaves the
others alone, every batch ends, counts its outcomes and tells its end where it was asked to, at most as many items run
as may, a request that comes again under its key makes one batch, and people who talk to the same agents are answered.
"""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from kelpie.core.conversations.batches import PARALLEL_MAX
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import ClientTimeout
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.ports.scripted_model import token_of
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.fixtures.pending_work import BATCH_JOBS, RUNS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

BEFORE, AFTER = Fault.crash_before_write, Fault.crash_after_write
QUIET_S = 900.0
ROUNDS = 3
ITEMS = 8
TRIES = 4  # of a request with a key whose answer was lost
ENDED = ("completed", "failed", "cancelled")
BELL = "bell.sim"  # it hears of the ends of batches
ASIDE = "/elsewhere"  # where it sends some, which nobody must follow
_STATES = "SELECT status, count(*) FROM batch_items WHERE batch_id = ? GROUP BY 1"
_RUNNING = """
    SELECT i.batch_id, i.agent_id, count(*) FROM batch_items i JOIN jobs j ON j.id = i.batch_id
    WHERE i.status = 'running' AND json_extract(j.metadata, '$.parallel') = ? GROUP BY 1, 2 HAVING count(*) > ?
"""
# Items that say something else than their runs.
_DIFFER = """
    SELECT i.batch_id, i.place, i.status, r.status, i.agent_id, r.agent_id, i.conversation_id, r.conversation_id
    FROM batch_items i JOIN runs r ON r.id = i.run_id
    WHERE i.status <> r.status OR i.agent_id <> r.agent_id OR i.conversation_id IS NOT r.conversation_id
"""
# Conversations in which items of parallel batches were said, as people see them.
_SHOWN_FORKS = """
    SELECT c.id FROM conversations c JOIN batch_items i ON i.conversation_id = c.id JOIN jobs j ON j.id = i.batch_id
    WHERE json_extract(j.metadata, '$.parallel') = 1 AND NOT c.hidden
"""


class Batches(ServerScenario):
    """Three agents get batches of every kind; one client talks to them, and one cancels batches."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.told: dict[str, int] = {}  # batches that were acknowledged, with the number of their items
        self.texts: dict[str, list[str]] = {}  # of batches that were acknowledged, in the order of their items
        self.keyed: dict[str, str] = {}  # batches by the keys of their requests
        self.cancelled: set[str] = set()  # batches that somebody tried to cancel
        self.rung: dict[str, int] = {}  # by batch: the last status that the bell answered with
        self._moods = machine.loop.rng("bell")
        machine.world.internet.host(BELL, self._ring)

    async def act(self) -> None:
        await self.make_agents(3)
        senders = (self._send(self.client(f"sender-{n}"), agent_id) for n, agent_id in enumerate(self.agents))
        await together((*senders, self._talk(self.client("talker")), self._cancel(self.client("canceller"))))

    def _notes(self, batch: str, texts: list[str]) -> None:
        self.told[batch], self.texts[batch] = ITEMS, texts

    async def _send(self, client: ScenarioClient, agent_id: str) -> None:
        for number in range(ROUNDS):
            await client.pause(5.0)
            texts = [f"{client.name} batch {number} item {item}" for item in range(ITEMS)]
            if client.tosses(0.3):  # the same is asked several times
                texts = [texts[0]] * ITEMS
            rings = {"callback_url": f"http://{BELL}/done"} if client.tosses(0.5) else {}
            if client.tosses(0.3):
                requests = [{"agent_id": client.picks(self.agents), "input": text} for text in texts]
                told = await client.ask("POST", "/v1/messages/batches", {"requests": requests, **rings})
                if told is not None and told.status == 200:
                    self._notes(told.json()["id"], texts)
                continue
            body = {"messages": texts, "parallel": client.tosses(0.4), **rings}
            query = client.picks(("", "?background=true", "?wait_s=1"))
            key = f"{client.name} {number}" if client.tosses(0.5) else None
            for _ in range(TRIES if key else 1):
                shown = await self._answer(client, f"/v1/agents/{agent_id}/messages/batch{query}", body, key)
                if shown is None:
                    continue
                self._notes(shown["batch_id"], texts)
                if key and self.keyed.setdefault(key, shown["batch_id"]) != shown["batch_id"]:
                    raise Broken("a request that comes again is one batch", f"{key}: {self.keyed[key]} and {shown}")
                if client.tosses(0.7):
                    break

    async def _answer(
        self, client: ScenarioClient, path: str, body: dict[str, Any], key: str | None
    ) -> dict[str, Any] | None:
        """The answer to a batch; some clients do not wait for it."""
        await self.machine.up()
        patience_s = 0.5 if client.tosses(0.2) else 3600.0
        headers = {"Idempotency-Key": key} if key else {}
        try:
            told = await client.connection.request("POST", path, body, headers=headers, timeout_s=patience_s)
        except ClientTimeout as late:
            if patience_s > 1.0:
                raise Broken("every request is answered", str(late)) from late
            return None
        except ConnectionLost:
            return None
        if told.status in (200, 207):
            states = [each["status"] for each in told.json()["results"]]
            if len(states) != ITEMS or any(each not in ENDED for each in states):
                raise Broken("a batch tells every outcome", f"{told.status}: {states}")
            if (told.status == 200) != (set(states) == {"completed"}):
                raise Broken("a batch tells every outcome", f"{told.status}: {states}")
            self._outcomes_have_answers(told.json()["results"], body)
        elif told.status not in (202, 409, 429, 503):
            raise Broken("a sound request is accepted", f"{path}: {told.status} {told.body!r}")
        return told.json() if told.status in (200, 202, 207) else None

    def _outcomes_have_answers(self, results: list[Any], body: dict[str, Any]) -> None:
        """An item that is completed shows its own answer, in a conversation of its own if they run at once."""
        for place, result in enumerate(results):
            wanted = f"echo {token_of(body['messages'][place])}"
            said = [one["content"] for one in result["messages"] if one["message_type"] == "assistant_message"]
            if result["index"] != place or (result["status"] == "completed" and said != [wanted]):
                raise Broken("an item has its own answer", f"{place}: {result} has not {wanted}")
        threads = [one["conversation_id"] for one in results if one["status"] == "completed"]
        if body["parallel"] and (None in threads or len(set(threads)) < len(threads)):
            raise Broken("items that run at once have a conversation each", f"{threads}")

    async def _talk(self, client: ScenarioClient) -> None:
        for _ in range(ROUNDS * 2):
            await client.pause(8.0)
            await client.say(client.picks(self.agents))
            for parallel, most in ((1, PARALLEL_MAX), (0, 1)):
                if many := self.machine.disk.query(_RUNNING, parallel, most):
                    raise Broken("at most as many items of a batch run as may", f"parallel is {parallel}: {many}")

    async def _cancel(self, client: ScenarioClient) -> None:
        for _ in range(ROUNDS):
            await client.pause(15.0)
            told = await client.ask("GET", "/v1/kelpie/batches?active=true")
            known = [] if told is None or told.status != 200 else told.json()
            if over := [each for each in known if each["status"] in ENDED]:
                raise Broken("a filter finds what fits it", f"{over}")
            if known and client.tosses(0.5):
                chosen = client.picks(known)["batch_id"]
                self.cancelled.add(chosen)
                await client.ask("POST", f"/v1/kelpie/batches/{chosen}/cancel")

    async def _ring(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        """Hears of the end of a batch; refuses some, and sends some to another address."""
        if asked.path != "/done":
            raise Broken("a callback goes where it was asked to", asked.path)
        told = json.loads(asked.body)
        stored = self.machine.disk.query("SELECT status FROM jobs WHERE id = ?", told["job_id"])
        if stored != [(told["status"],)] or told["status"] not in ENDED or told["completed_at"] is None:
            raise Broken("a callback says how its batch ended", f"{told}: {stored}")
        status = 204 if told["job_id"] in self.rung else self._moods.choice((204, 302, 500))
        self.rung[told["job_id"]] = status
        await answer.start(status, {"location": f"http://{BELL}{ASIDE}"} if status == 302 else {})

    def check(self) -> None:
        super().check()
        disk = self.machine.disk
        jobs = {row[0]: row[1:] for row in disk.query("SELECT id, status, metadata FROM jobs WHERE job_type = 'batch'")}
        rows = disk.query("SELECT batch_id, place, agent_id, status, run_id, given FROM batch_items ORDER BY 1, 2")
        counts = Counter(batch for batch, *_ in rows)
        for batch, count in self.told.items():
            if counts[batch] != count:
                raise Broken("an acknowledged batch is stored", f"{batch} has {counts[batch]} of {count} items")
        if open_jobs := [job for job, (status, _) in jobs.items() if status not in ENDED]:
            raise Broken("a batch ends", f"{open_jobs}")
        if missing := set(self.keyed.values()) - set(jobs):
            raise Broken("an acknowledged batch is stored", f"{missing}")
        for batch, (status, metadata) in jobs.items():
            self._is_counted(batch, status, json.loads(metadata))
        self._heard(rows)
        self._texts()
        self._ends()

    def _ends(self) -> None:
        """An item ends as its run did, in its place; the end of a batch is told where it was asked for."""
        query = self.machine.disk.query
        if differ := query(_DIFFER):
            raise Broken("an item ends as its run did", f"{differ}")
        if shown := query(_SHOWN_FORKS):
            raise Broken("the conversations of items that run at once are hidden", f"{shown}")
        for batch, due_at, url in query("SELECT id, callback_due_at, callback_url FROM jobs WHERE job_type = 'batch'"):
            if due_at is not None or (url is not None and self.rung.get(batch) != 204):
                raise Broken("the callback of a batch comes until it is taken", f"{batch} at {url}: {self.rung}")

    def _is_counted(self, batch: str, status: str, metadata: dict[str, Any]) -> None:
        """The end of a batch says what became of its items."""
        states = dict(self.machine.disk.query(_STATES, batch))
        told = {state: metadata[state] for state in ENDED if metadata[state]}
        wanted = "failed" if states == {"failed": ITEMS} else "completed"
        if told != states or status != ("cancelled" if metadata.get("cancel_requested") else wanted):
            raise Broken("a batch counts the outcomes of its items", f"{batch} is {status} with {metadata}: {states}")
        if metadata.get("cancel_requested") and batch not in self.cancelled:
            raise Broken("a batch is cancelled by whoever asks for it", f"{batch}: {metadata}")

    def _texts(self) -> None:
        """Each item was heard as it was written."""
        for otid, content in self.machine.disk.query(
            "SELECT otid, content FROM messages WHERE role = 'user' AND otid LIKE 'job-%'"
        ):
            batch, place, _ = otid.rsplit("-", 2)
            text = json.loads(content)[0]["text"]
            if batch in self.texts and self.texts[batch][int(place)] not in text:
                raise Broken("an item is heard as it was sent", f"{otid}: {text!r}, not {self.texts[batch]}")

    def _heard(self, rows: list[Any]) -> None:
        disk = self.machine.disk
        said = disk.query(
            "SELECT otid, seq, conversation_id FROM messages WHERE role = 'user' AND otid LIKE 'job-%' ORDER BY seq"
        )
        times = Counter(otid for otid, *_ in said)
        places = {otid: seq for otid, seq, conversation in said if conversation is None}
        last: dict[tuple[str, str], int] = {}
        for batch, place, agent_id, status, run_id, given in rows:
            otid = f"{batch}-{place}-0"
            where = f"{otid} of {agent_id} is {status}, with {run_id}, and was heard {times[otid]} times"
            if status not in ENDED or given is not None:
                raise Broken("an item has one outcome", where)
            if times[otid] > 1 or (times[otid] == 0 and status == "completed" and self._stepped(run_id)):
                raise Broken("an item is heard once", where)
            if times[otid] and run_id is None:
                raise Broken("an item is heard once", where)
            if otid in places:
                if places[otid] < last.get((batch, agent_id), -1):
                    raise Broken("items are heard in their order", where)
                last[batch, agent_id] = places[otid]

    def _stepped(self, run_id: str) -> bool:
        return bool(self.machine.disk.query("SELECT 1 FROM runs WHERE id = ? AND step_count > 0", run_id))


BATCHES = scenario(
    "batches",
    Batches,
    faults=(Aim(AFTER, "database.acknowledge", rate=0.005, times_max=2),),
    plots=(
        (Aim(BEFORE, "journal.open", nth=4), Aim(AFTER, "journal.step", nth=9)),
        (
            Aim(BEFORE, "database.begin", rate=0.01, times_max=3),
            Aim(AFTER, "database.acknowledge", rate=0.02, times_max=3),
        ),
        (
            Aim(Fault.storage_write_fail, "database.commit", rate=0.03),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.02),
            Aim(Fault.storage_read_fail, "database.read", rate=0.02),
        ),
        (Aim(Fault.llm_timeout, "llm.reply", rate=0.3), Aim(Fault.llm_rate_limit, "llm.with_retry_after", rate=0.1)),
        (
            Aim(Fault.network_packet_loss, "network.client", rate=0.05),
            Aim(Fault.network_delay, "network.client", rate=0.1),
            Aim(Fault.cpu_starvation, "cpu", rate=0.05),
        ),
    ),
    swarm=(Fault.storage_latency, Fault.storage_busy, Fault.cpu_starvation),
    settings=replace(SETTINGS, mailbox_size=6),
    quiet_s=QUIET_S,
    pending=(RUNS, BATCH_JOBS),
)
