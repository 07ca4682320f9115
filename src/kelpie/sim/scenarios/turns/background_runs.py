"""Background runs while the disk fails and the power is cut: an acknowledged run is answered once, and a client that
reads a stream, from any number and any number of times, never gets something else under the same number.

A client that gives the same ids to messages of two conversations, or to other words, has all of them said once; in the
default conversation also again, after other words came in between. Each client writes to a conversation of its own.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.fixtures.clients import PATIENCE_S, ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

BELL = "bell.sim"
READS_MAX = 60
RINGING_S = 3.0  # that a receiver of callbacks takes; the sender is more patient


class BackgroundRunScenario(ServerScenario):
    """Clients that send in the background, lose their streams and resume them, while others read along."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.accepted: dict[str, str] = {}  # run -> the token of its message
        self.shown: dict[str, dict[int, str]] = {}  # run -> number -> frame
        self.whole: set[str] = set()  # runs whose stream was read to its end
        self.rung: list[str] = []
        self.ringing: set[tuple[str, int]] = set()  # runs whose callback is being taken, and the boot that sent it
        self.waited: list[str] = []  # tokens of the messages whose sender waited for the answer
        self.repeated: Counter[tuple[str, str]] = Counter()  # how often a text that came several times must be said
        machine.world.internet.host(BELL, self._ring)

    async def act(self) -> None:
        await self.make_agents(3)
        sending = (self._send(client, number) for number, client in enumerate(self.clients(3)))
        await together((*sending, self._repeat(self.client("forgetful"))))

    async def _send(self, client: ScenarioClient, number: int) -> None:
        agent_id, path = self.agents[number % 2], f"/v1/agents/{self.agents[number % 2]}/messages"
        own = number >= 2  # a second client of the agent, in a conversation of its own
        if own:
            lane = (await client.insist("POST", f"/v1/conversations/?agent_id={agent_id}", {}))["id"]
            path = f"/v1/conversations/{lane}/messages"
        for turn in range(2):
            await client.pause()
            token = self.machine.history.token()
            lines = LINES[(number + turn) % len(LINES)]
            waits = client.tosses(0.3)  # without calls: of a turn that failed halfway, a second one makes them again
            text = self._text(token, () if waits else lines)
            body: dict[str, Any] = {"messages": [{"role": "user", "content": text, "otid": f"otid-{token}"}]}
            if waits:
                await client.insist("POST", path, {**body, "streaming": False})
                self.waited.append(token)
                continue
            body["callback_url"] = f"http://{BELL}/done"
            if own or client.tosses(0.5):
                run_id = await self._streamed(client, path if own else f"{path}/stream", body)
            else:
                run_id = (await client.insist("POST", f"{path}/async", body))["id"]
            self.accepted[run_id] = token
            await self._read(client, run_id)

    async def _repeat(self, client: ScenarioClient) -> None:
        """Sends messages several times, in two conversations, under the same ids and partly with other words."""
        agent_id, last = self.agents[2], ""
        lane = (await client.insist("POST", f"/v1/conversations/?agent_id={agent_id}", {}))["id"]
        words = [(into, drink) for into in ("", lane) for drink in ("milk", "tea")]
        for into, drink in (*words, client.picks(words), client.picks(words)):
            pair = (("first", "a note"), ("second", f"with {drink}"))
            body: dict[str, Any] = {
                "messages": [{"role": "user", "content": text, "otid": f"otid-{name}"} for name, text in pair]
            }
            if into:
                path, body = f"/v1/conversations/{into}/messages", {**body, "agent_id": agent_id, "streaming": False}
            else:
                path = f"/v1/agents/{agent_id}/messages"
            await client.insist("POST", path, body)
            text = f"with {drink}"
            if not self.repeated[into, text] or (not into and text != last):
                self.repeated[into, text] += 1
            last = last if into else text

    async def _streamed(self, client: ScenarioClient, path: str, body: dict[str, Any]) -> str:
        """Sends until the stream names a run; sending it again under its id doubles nothing."""
        tokens = {**body, "background": True, "stream_tokens": True}
        for _ in range(READS_MAX):
            await self.machine.up()
            try:
                async with (
                    asyncio.timeout(PATIENCE_S),
                    self.machine.client(client.name).stream("POST", path, tokens) as stream,
                ):
                    async for event in stream.events() if stream.status == 200 else _nothing():
                        return event.json()["run_id"]
            except ConnectionLost:
                pass
            await client.pause()
        raise Broken("the server recovers", f"a background stream was refused {READS_MAX} times")

    def _text(self, token: str, lines: tuple[str, ...]) -> str:
        return "\n".join([token, *lines]).replace("{token}", token)

    async def _read(self, client: ScenarioClient, run_id: str) -> None:
        """Reads a stream to its end, from the place where it broke off, or from anywhere before."""
        for _ in range(READS_MAX):
            await self.machine.up()
            known = self.shown.setdefault(run_id, {})
            after = max(known, default=0) if client.tosses(0.6) else 0
            try:
                if await self._read_once(client, run_id, after):
                    self.whole.add(run_id)
                    return
            except ConnectionLost:
                pass
            await client.pause()

    async def _read_once(self, client: ScenarioClient, run_id: str, after: int) -> bool:
        body = {"starting_after": after, "include_pings": client.tosses(0.5)}
        async with (
            asyncio.timeout(PATIENCE_S),
            self.machine.client(client.name).stream("POST", f"/v1/runs/{run_id}/stream", body) as stream,
        ):
            if stream.status != 200:
                return False
            ended = False
            async for event in stream.events():
                if event.data == "[DONE]":
                    return ended
                frame = event.json()
                ended = ended or (frame["message_type"] == "stop_reason" and event.event != "error")
                if event.event == "error" and frame["error_type"] == "storage_error":
                    return False
                self._see(run_id, frame)
        return False

    def _see(self, run_id: str, frame: dict[str, Any]) -> None:
        number = frame.get("seq_id")
        if number is None or (frame["message_type"] == "ping" and "kelpie_abandoned" not in frame):
            return
        told, known = json.dumps(frame, sort_keys=True), self.shown.setdefault(run_id, {})
        if known.setdefault(number, told) != told:
            raise Broken("a frame keeps its number", f"{run_id} {number}: {known[number]} and then {told}")

    async def _ring(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        run_id = json.loads(asked.body)["run_id"]
        found = self.machine.disk.query("SELECT completed_at FROM runs WHERE id = ?", run_id)
        if not found or found[0][0] is None:
            raise Broken("a callback comes after the end", f"{run_id} has not ended")
        sending = run_id, self.machine.boots
        if sending in self.ringing:
            raise Broken("a callback is sent once at a time", f"{run_id} was rung again before it had answered")
        self.rung.append(run_id)
        self.ringing.add(sending)
        try:
            await asyncio.sleep(RINGING_S)
        finally:
            self.ringing.discard(sending)
        await answer.start(204, {})

    async def settle(self) -> None:
        await super().settle()
        reader = self.client("reader")
        for run_id in self.accepted:
            await self._read(reader, run_id)
            if run_id not in self.whole:
                raise Broken("every stream ends", f"{run_id} was read {READS_MAX} times without its end")
            self._is_complete(run_id)

    def _is_complete(self, run_id: str) -> None:
        """The committed steps in the stream are the history of the run."""
        rows = self.machine.disk.query(
            "SELECT id FROM messages WHERE run_id = ? AND role IN ('assistant', 'tool') ORDER BY seq", run_id
        )
        frames = [json.loads(told) for _, told in sorted(self.shown[run_id].items())]
        called_off = {frame.get("kelpie_abandoned") for frame in frames}
        told = dict.fromkeys(frame["id"] for frame in frames if not str(frame.get("id", "ping-")).startswith("ping-"))
        ids = [message_id for message_id in told if message_id not in called_off]
        numbers = sorted(self.shown[run_id])
        if not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise Broken("the numbers of a stream have no gap", f"{run_id}: {numbers}")
        shown = [row_id for (row_id,) in rows if row_id in ids]  # some results are not shown to clients
        if ids != shown or not ids:
            raise Broken("a stream has the committed steps in order", f"{run_id}: {ids} and {rows}")

    def _is_repeated_once(self) -> None:
        rows = self.machine.disk.query(
            "SELECT coalesce(conversation_id, ''), content FROM messages WHERE agent_id = ? AND role = 'user'",
            self.agents[2],
        )
        said = Counter((lane, str(json.loads(content)[0].get("text"))) for lane, content in rows)
        for each, times in sorted(self.repeated.items()):
            if said[each] != times:
                raise Broken("a message that comes again is said once", f"{each}: {said[each]}, not {times}, in {said}")

    def _last_used_is_known(self) -> None:
        for agent_id, updated_at in self.machine.disk.query("SELECT id, updated_at FROM agents"):
            ends = self.machine.disk.query("SELECT completed_at FROM runs WHERE agent_id = ?", agent_id)
            if late := [end for (end,) in ends if end is not None and end > updated_at]:
                told = f"{agent_id} was updated at {updated_at}, and its last run ended at {max(late)}"
                raise Broken("every turn moves the agent's updated_at", told)

    def check(self) -> None:
        super().check()
        self._last_used_is_known()
        self._is_repeated_once()
        for run_id, token in self.accepted.items():
            ((status, url, url_due),) = self.machine.disk.query(
                "SELECT status, callback_url, callback_due_at FROM runs WHERE id = ?", run_id
            )
            if status != "completed":
                raise Broken("what was acknowledged is answered", f"{run_id} ({token}) is {status}")
            if url_due is not None or (url is not None and run_id not in self.rung):
                raise Broken("a callback comes at least once", f"{run_id} was rung {self.rung.count(run_id)} times")
        for token in (*self.accepted.values(), *self.waited):
            ended = self.machine.disk.query(
                "SELECT runs.id, status FROM runs JOIN run_otids ON run_id = runs.id WHERE otid = ?", f"otid-{token}"
            )
            if [status for _, status in ended if status != "failed"] != ["completed"]:
                raise Broken("a message that comes again is answered once", f"{token}: {ended}")


async def _nothing() -> AsyncIterator[Any]:
    for nothing in ():
        yield nothing


BACKGROUND = scenario(
    "background-runs-and-readers",
    BackgroundRunScenario,
    faults=(
        Aim(Fault.storage_write_fail, "database.commit", rate=0.02, times_max=3),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.02, times_max=3),
        Aim(Fault.storage_write_fail, "stream.previews", rate=0.15),
        Aim(Fault.storage_write_fail, "stream.previews.told", rate=0.15),
        Aim(Fault.storage_write_fail, "callbacks.record", rate=0.3, times_max=2),
        Aim(Fault.storage_write_fail, "callbacks.record.told", rate=0.3, times_max=2),
        Aim(Fault.crash_before_write, "database.begin", rate=0.01, times_max=2),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.02, times_max=2),
        Aim(Fault.vanishing_client, "client.stream", rate=0.05),
    ),
    swarm=(Fault.storage_latency, Fault.network_delay, Fault.storage_read_fail, Fault.slow_client),
)
