"""A model of an agent's conversations: what was said and answered in each, the runs, and the prompts of the model.

Messages go out in every way that there is, are sent again under their ids, cancelled and called back; conversations are
created, forked and deleted. A turn of the scripted model is known in advance, message by message. A turn that a fault
cut off may lack its end, and nothing else.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from itertools import pairwise
from typing import Any

from kelpie.core.time import MICROS_PER_SECOND, as_datetime
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.ports.clock import START
from kelpie.sim.ports.model_provider import SeenRequest
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.api_model.modelled_resource import ModelledResource, micros
from kelpie.sim.scenarios.api_model.said_messages import (
    SUMMARY,
    Said,
    bounded,
    has_number,
    is_beginning,
    is_part,
    numbered_frames,
    said_in,
    said_in_prompt,
    shown_of,
    turn_of,
)
from kelpie.sim.scenarios.fixtures.clients import PATIENCE_S, TRIES_MAX, ScenarioClient
from kelpie.sim.scenarios.fixtures.prompts import element

DEFAULT = "default"
WAYS = ("whole", "stream", "tokens", "async", "background")
LANES_MAX = 4
MAILBOX_SIZE = 2
SHORT = 6  # messages, which are not worth a summary
PAGE = 3
WAITS_S = (1.0, 5.0, 30.0)  # after each refusal of a callback
PROMPT_USD, REPLY_USD = 2, 3  # a million tokens
TYPES = ("assistant_message", "tool_call_message", "tool_return_message")
USED = ("prompt_tokens", "completion_tokens", "total_tokens", "kelpie_cost_usd")
ARRIVES_S = 5.0  # a prompt is built so long before the model has it, at most
KEPT_S = 3 * 3600.0  # a stream, after the end of its run
CLEANED_S = 20.0  # until the next cleanup is over


class WallClock:
    """The clock that all models share: hours go by only while no other model acts."""

    def __init__(self) -> None:
        self._acting = 0
        self._alone = False
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def acting(self, *, alone: bool) -> AsyncGenerator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone and not (alone and self._acting))
            self._acting, self._alone = self._acting + 1, alone
        try:
            yield
        finally:
            async with self._changed:
                self._acting, self._alone = self._acting - 1, False
                self._changed.notify_all()


class TurnModel(ModelledResource):
    """The state: the messages of each conversation and of the agent, and the block 'human' as each of them sees it."""

    def __init__(self, machine: Machine, client: ScenarioClient, agent_id: str, clock: WallClock) -> None:
        super().__init__(machine, client)
        self._clock = clock
        self.agent_id = agent_id
        self.ids: dict[str, str] = {}  # of conversations, by their summaries
        # Text, body, way, and how far the clock had gone on by hours: a stream is kept for some of them only.
        self.sent: dict[str, list[tuple[str, dict[str, Any], str, float]]] = {}  # by conversation
        self.state = {"lanes": {DEFAULT: []}, "said": [], "human": {DEFAULT: ["start"]}, "runs": []}
        self._made = 0
        self.compacted: set[str] = set()  # conversations
        self._rung: list[tuple[str, float]] = []
        self._answers: list[int] = []
        self.bell = f"{client.name}.bell.sim"
        machine.world.internet.host(self.bell, self._ring)

    async def act(self) -> None:
        acts = (self._say, self._say, self._say, self._repeat, self._repeat, self._hurry, self._open, self._fork)
        others = (self._cancel, self._cancel_waiting, self._call_back, self._close, self._empty, self._crowd)
        chosen = self.client.picks((*acts, *others, self._compact, self._say_twice, self._say_for_long))
        async with self._clock.acting(alone=chosen == self._say_for_long):
            await chosen(self.client.picks(list(self.state["lanes"])))

    # --- turns -----------------------------------------------------------------------------------------------------

    def _text(self, *, calls: bool = True) -> str:
        self._made += 1
        lines = [f"word{self._made} of the client"]
        if calls and self.client.tosses(0.4):
            lines.append(f'call outside {{"mark": "{self.client.name}-{self._made}"}}')
        if calls and self.client.tosses(0.3):
            lines.append(f"remember line{self._made}")
        return "\n".join(lines)

    async def _say(self, lane: str) -> None:
        """Sometimes with instructions or skills for this turn only, for so many steps, or to be shown a part of it."""
        text = self._text()
        more: dict[str, Any] = {}
        if self.client.tosses(0.2):
            more["override_system"] = f"only {self._made}"
        elif self.client.tosses(0.2):
            more["client_skills"] = [{"name": f"skill{self._made}", "description": "helps", "location": "here"}]
        if self.client.tosses(0.2):
            more["max_steps"] = self.client.picks((1, 2))
        if self.client.tosses(0.2):
            more["include_return_message_types"] = [one for one in TYPES if self.client.tosses(0.5)] or [TYPES[0]]
        await self._turn(lane, text, {**self._body(text), **more}, self.client.picks(WAYS))

    def _body(self, text: str) -> dict[str, Any]:
        named = {"name": "visitor"} if self._made % 3 == 0 else {}
        body = self._said_by(text, otid=f"otid-{self._made}", **named)
        return {**body, "assistant_message_tool_name": f"tool{self._made}"} if self._made % 2 else body

    def _said_by(self, text: str, **more: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text, **more}]}

    async def _turn(self, lane: str, text: str, body: dict[str, Any], way: str) -> None:
        """One turn from its request to its end, with all that can be seen of it."""
        asked = len(self.machine.llm.seen)
        told = await self._send(lane, body, way)
        await self.rest()
        whole = turn_of(text)
        turn = bounded(whole, body.get("max_steps"))
        runs = await self._runs()
        new = runs[: len(runs) - len(self.state["runs"])]
        if told is not None and not self.machine.faults.firings:
            shown, reason = shown_of(turn[1:], body), "end_turn" if turn == whole else "max_steps"
            if told["said"] != shown or [(run["status"], run["stop_reason"]) for run in new] != [("completed", reason)]:
                raise Broken("a turn is answered as its script says", f"{way} {text!r}: {told}, {new}")
            self._is_kept_as_asked(new[0], body, way, reason)
            await self._usage_is_told(new[0], told["usage"])
            self._prompts_are(lane, turn, asked, body)
        before = deepcopy(self.state)
        self.state = await self.read()
        complete = any(run["status"] == "completed" for run in new)
        self._grew(before, lane, turn, complete=complete, failed=[run for run in new if run["status"] != "completed"])
        for run in new:
            await self._run_is_whole(run, lane, turn)
        if new:
            self._followed(lane)
        if complete and turn == whole:
            self.sent.setdefault(lane, []).append((text, body, way, self.machine.world.ahead_s))

    def _is_kept_as_asked(self, run: Mapping[str, Any], body: Mapping[str, Any], way: str, reason: str) -> None:
        """A run says how its client asked for it, and how it went."""
        view = run["request_config"]["assistant_message_tool_name"]
        asked = view, run["callback_url"], run["background"], run["stop_reason"]
        wanted = body.get("assistant_message_tool_name", "send_message"), body.get("callback_url")
        if asked != (*wanted, way in ("async", "background"), reason) or "run_type" not in run["metadata"]:
            raise Broken("a run is kept as it was asked for", f"{way}: {run}, of {body}")
        if run["ttft_ns"] is None or run["ttft_ns"] > run["total_duration_ns"]:
            raise Broken("a run is kept as it was asked for", f"{way}: {run['ttft_ns']} of {run['total_duration_ns']}")

    def _followed(self, lane: str) -> None:
        """In the default conversation only the newest message is known when it comes again, in the others each."""
        if lane == DEFAULT:
            self.sent.pop(lane, None)

    async def _usage_is_told(self, run: Mapping[str, Any], told: Mapping[str, Any]) -> None:
        """The end of an answer says what its run has used."""
        path = f"/v1/runs/{run['id']}"
        used = await self.client.insist("GET", f"{path}/usage")
        count = (await self.client.insist("GET", f"{path}/metrics"))["num_steps"]
        if [told[name] for name in (*USED, "step_count")] != [*(used[name] for name in USED), count]:
            raise Broken("an answer says what it has used", f"{run['id']}: {told}, recorded {used} in {count} steps")

    def _grew(self, before: Any, lane: str, turn: Said, *, complete: bool, failed: Sequence[Any]) -> None:
        """Only this conversation has more than before: the turn, or of one that failed its beginning."""
        wanted = deepcopy(before)
        new = self.state["lanes"][lane][len(before["lanes"][lane]) :]
        turn = self._disturbed(new, turn)
        if (failed and not complete and is_beginning(new, turn)) or (not failed and not complete and not new):
            turn = new
        elif failed and complete and len(new) > len(turn) and is_beginning(new[: len(new) - len(turn)], turn):
            turn = [*new[: len(new) - len(turn)], *turn]
        wanted["lanes"][lane] += turn
        wanted["said"] += turn
        wanted["runs"] = self.state["runs"]
        lines = [said.split('"')[-2] for said in turn if said.startswith("call memory_insert")]
        results = [said for said in turn if said.startswith("return memory_insert")]
        owner = lane if lane in wanted["human"] else DEFAULT
        wanted["human"][owner] += [
            line for line, result in zip(lines, results, strict=False) if result.endswith("success")
        ]
        if self.state != wanted:
            shown = {part: (self.state[part], wanted[part]) for part in wanted if self.state[part] != wanted[part]}
            raise Broken("a turn adds itself to its conversation", f"{lane} {turn}: {shown}")

    def _disturbed(self, new: Said, turn: Said) -> Said:
        """The turn with the errors that faults have made of its results, which are told at the end of it."""
        tail = new[len(new) - len(turn) :] if len(new) >= len(turn) else new
        return tail if self.machine.faults.firings and len(tail) == len(turn) and is_part(tail, turn) else turn

    async def _send(self, lane: str, body: dict[str, Any], way: str) -> dict[str, Any] | None:
        """What the client was told; None where nobody knows, or it was refused."""
        path = f"/v1/agents/{self.agent_id}/messages"
        if lane != DEFAULT or (way != "async" and self.client.tosses(0.2)):
            path, body = f"/v1/conversations/{self._address(lane)}/messages", {**body, "agent_id": self.agent_id}
            if way == "async":
                way = "background"
        in_conversation = path.startswith("/v1/conversations")
        if way == "whole":
            response = await self._asked("POST", path, {**body, "streaming": False})
            return None if response is None else {"said": said_in(response["messages"]), "usage": response["usage"]}
        if way == "async":
            run = await self._asked("POST", f"{path}/async", body)
            return None if run is None else _told(await self._follow(run["id"], 0))
        tokens = way == "tokens" or (way == "background" and self.client.tosses(0.5))
        options = {"streaming": True, "stream_tokens": tokens, "background": way == "background"}
        frames = await self._stream(path if in_conversation else f"{path}/stream", {**body, **options})
        if frames is None:
            return None
        if way == "background":
            await self._follow_parts(lane, frames, body)
        return _told(frames)

    async def _asked(self, method: str, path: str, body: Any) -> Any:
        response = await self.client.ask(method, path, body)
        if response is not None and response.status == 200:
            return response.json()
        self.may_fail(f"{method} {path}", None if response is None else response.body)
        return None

    async def _stream(self, path: str, body: Any) -> list[dict[str, Any]] | None:
        """The frames of a stream; None where it did not come to its end."""
        await self.machine.up()
        frames: list[dict[str, Any]] = []
        client = self.client.connection
        try:
            async with asyncio.timeout(PATIENCE_S), client.stream("POST", path, body) as stream:
                if stream.status != 200:
                    self.may_fail(path, b"".join([chunk async for chunk in stream.chunks()]))
                    return None
                async for event in stream.events():
                    if event.data == "[DONE]":
                        return frames
                    if event.event == "error":
                        self.may_fail(path, event.data)
                        return None
                    frames.append(event.json())
        except ConnectionLost:
            pass
        self.may_fail(path, "no end")
        return None

    async def _follow(self, run_id: str, after: int, path: str = "", /, **named: str) -> list[Any]:
        path = path or f"/v1/runs/{run_id}/stream"
        for _ in range(TRIES_MAX):
            frames = await self._stream(path, {"starting_after": after, **named})
            if frames is not None:
                return frames
            await self.client.pause()
        raise Broken("every stream ends", run_id)

    async def _follow_parts(self, lane: str, frames: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> None:
        """A stored stream read again from anywhere, by its run or by the id of its message, has the same frames."""
        numbered, numbers = numbered_frames(frames), [frame["seq_id"] for frame in frames if has_number(frame)]
        if not numbers:  # the client wanted to be shown nothing of what was said
            return
        at = self.client.picks(range(len(numbers)))
        run_id = next(frame["run_id"] for frame in frames if frame.get("run_id"))
        way = self.client.picks(({}, {"run_id": run_id}, {"otid": body["messages"][0]["otid"]}))
        path, named = f"/v1/conversations/{self._address(lane)}/stream", {"agent_id": self.agent_id, **way}
        again = await self._follow(run_id, numbers[at], path if way else "", **named)
        if (told := numbered_frames(again)) != numbered[at + 1 :]:
            raise Broken("a stream read again is the same", f"{run_id} after {numbers[at]}: {told} and {numbered}")

    def _prompts_are(self, lane: str, turn: Said, asked: int, sent: Mapping[str, Any]) -> None:
        """Each step was asked with what its conversation has, and with the memory of that moment."""
        own, skills = sent.get("override_system"), sent.get("client_skills", ())
        requests = [one for one in self.machine.llm.seen[asked:] if one.body.get("user") == self.agent_id]
        for request in requests if own is None else ():
            self._instructions_are(lane, request, skills)
        seen = [request.body for request in requests]
        owner = lane if lane in self.state["human"] else DEFAULT
        lines, done = list(self.state["human"][owner]), 0
        for body in seen:
            while done < len(turn) and not turn[done].startswith(("call", "assistant")):
                done += 1
            wanted = [*self.state["lanes"][lane], *turn[:done]]
            shown = said_in_prompt(body["messages"][1:])
            if lane in self.compacted:
                wanted = [said for said in wanted if said != SUMMARY]
                wanted = [SUMMARY, *wanted[max(0, len(wanted) - len(shown) + 1) :]]  # and the end of it
            if shown != wanted:
                raise Broken("a prompt is its conversation", f"{lane} was shown {shown} and not {wanted}")
            lines += [said.split('"')[-2] for said in turn[:done] if said.startswith("call memory_insert")]
            if own is not None:
                if body["messages"][0]["content"] != own:
                    raise Broken("a turn has its own instructions", f"{own}: {body['messages'][0]}")
                done += 1
                continue
            known = (element(element(body["messages"][0]["content"], "human") or "", "value") or "").split("\n")
            if known != list(dict.fromkeys(lines)):
                raise Broken("a prompt has the memory of its conversation", f"{lane}: {known} and not {lines}")
            done += 1
        if len(seen) != sum(said.startswith(("call", "assistant")) for said in turn):
            raise Broken("a step asks once", f"{turn} was asked {len(seen)} times")

    def _instructions_are(self, lane: str, request: SeenRequest, skills: Sequence[Mapping[str, str]]) -> None:
        """They name the agent, the conversation and the day, and the skills of this turn alone."""
        text = str(request.body["messages"][0]["content"])
        lines = [f"- AGENT_ID: {self.agent_id}", f"- CONVERSATION_ID: {self._address(lane)}"]
        lines += [f"- {one['name']}: {one['description']} (described in {one['location']})" for one in skills]
        moments = (at_s + self.machine.world.ahead_s for at_s in (request.at_s - ARRIVES_S, request.at_s))
        days = {f"- Today: {as_datetime(START + int(s * MICROS_PER_SECOND)):%Y-%m-%d} (UTC)" for s in moments}
        known = set(text.split("\n"))
        if not known.issuperset(lines) or not known & days or ("<available_skills>" in text) != bool(skills):
            raise Broken("a prompt says where it is", f"{lines} and {sorted(days)} are not in {text!r}")

    async def _run_is_whole(self, run: Mapping[str, Any], lane: str, turn: Said) -> None:
        """The messages, steps and usage of a run fit each other."""
        path = f"/v1/runs/{run['id']}"
        said = said_in(await self.client.insist("GET", f"{path}/messages?limit=100"))
        steps = await self.client.insist("GET", f"{path}/steps?limit=100")
        usage = await self.client.insist("GET", f"{path}/usage")
        complete, shown = run["status"] == "completed", shown_of(turn, run["request_config"] or {})
        if (complete and said != self._disturbed(said, shown)) or (shown == turn and not is_beginning(said, turn)):
            raise Broken("a run has its messages", f"{run['id']} of {lane}: {said} and not {shown}")
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            if usage[name] != sum(step[name] for step in steps):
                raise Broken("a run used what its steps used", f"{run['id']}: {usage} and {steps}")
        for used, cost in ((usage, run["kelpie_cost_usd"]), *((step, step["kelpie_cost_usd"]) for step in steps)):
            micros = PROMPT_USD * used["prompt_tokens"] + REPLY_USD * used["completion_tokens"]
            if not cost == used["kelpie_cost_usd"] == micros / 1_000_000:
                raise Broken("a run costs what its tokens cost", f"{run['id']}: {cost} for {used}")
        alone = {**(await self.maybe(path)), **{name: run[name] for name in run if name.startswith("callback")}}
        if alone != run or (run["conversation_id"] or DEFAULT) not in (DEFAULT, self.ids.get(lane)):
            raise Broken("a list has what is there", f"{run}")
        count = (await self.client.insist("GET", f"{path}/metrics"))["num_steps"]
        if complete and not count == len(steps) == sum(said.startswith(("call", "assistant")) for said in turn):
            raise Broken("a run has its steps", f"{run['id']} counts {count} and has {len(steps)}: {turn}")

    async def _repeat(self, lane: str) -> None:
        """The same again under its id is said once; other words under the same id are a message of their own."""
        if not self.sent.get(lane):
            return
        text, body, way, ahead_s = self.client.picks(self.sent[lane])
        if self.client.tosses(0.3):
            other = self._text(calls=False)
            body = {"messages": [{**body["messages"][0], "content": other}]}
            await self._turn(lane, other, body, "whole")
            return
        is_kept = ahead_s == self.machine.world.ahead_s and way in ("async", "background")
        in_background = ("async",) if is_kept else ()
        told = await self._send(lane, body, self.client.picks(("whole", "stream", *in_background)))
        await self.rest()
        if told is not None and told["said"] != shown_of(turn_of(text)[1:], body):
            raise Broken("a message that comes again has its answer", f"{text!r}: {told}")
        await self.check()

    async def _hurry(self, _lane: str) -> None:
        """The same again by a client that waits, while its run in the background has perhaps not begun: one turn."""
        text, path = self._text(), f"/v1/agents/{self.agent_id}/messages"
        body = self._body(text)
        if self.client.tosses(0.5):  # behind another turn
            await self._asked("POST", f"{path}/async", self._said_by(before := self._text(calls=False)))
        else:
            before = None
        made = await self._asked("POST", f"{path}/async", body)
        self._followed(DEFAULT)
        told = None if made is None else await self._asked("POST", path, body)
        await self.rest()
        state, self.state = self.state, await self.read()
        if self.machine.faults.firings:
            return
        new = self.state["lanes"][DEFAULT][len(state["lanes"][DEFAULT]) :]
        runs = len(self.state["runs"]) - len(state["runs"])
        turns = [turn_of(each) for each in (before, text) if each is not None]
        if told is None or said_in(told["messages"]) != turn_of(text)[1:]:
            raise Broken("a message that comes again has its answer", f"{text!r}: {told}")
        if new != [said for turn in turns for said in turn] or runs != len(turns):
            raise Broken("a message that comes again is said once", f"{new} of {turns} in {runs} runs")
        self.sent[DEFAULT] = [(text, body, "async", self.machine.world.ahead_s)]

    async def _cancel(self, lane: str) -> None:
        """A run in the background is cancelled at any moment, by its id, its agent or its conversation."""
        text = self._text()
        path, address = f"/v1/agents/{self.agent_id}/messages", self._address(lane)
        body = self._body(text)
        sending, run_id = None, None
        if lane == DEFAULT:
            made = await self._asked("POST", f"{path}/async", body)
            run_id = None if made is None else made["id"]
        else:
            sending = asyncio.ensure_future(self._send(lane, body, "whole"))
        await self.client.pause(1.5)
        ways = [(f"{path}/cancel", {}), (f"/v1/conversations/{address}/cancel?agent_id={self.agent_id}", {})]
        if run_id is not None:
            ways.append((f"{path}/cancel", {"run_ids": [run_id]}))
        where, given = self.client.picks(ways)
        response = await self.client.ask("POST", where, given)
        if sending is not None:
            await sending
        await self.rest()
        if response is not None and response.status == 200:
            for each, word in response.json().items():
                run = await self.maybe(f"/v1/runs/{each}")
                if word != "cancelled" or run is None or run["completed_at"] is None:
                    raise Broken("a cancelled run has ended", f"{each}: {word} {run}")
        elif response is None or response.status != 409:
            self.may_fail(where, None if response is None else response.body)
        before, runs = deepcopy(self.state), await self._runs()
        new = runs[: len(runs) - len(self.state["runs"])]
        self.state = await self.read()
        complete = [run for run in new if run["status"] == "completed"]
        failed = [run for run in new if run["status"] != "completed"]
        self._grew(before, lane, turn_of(text), complete=bool(complete), failed=failed)
        for run in new:
            await self._run_is_whole(run, lane, turn_of(text))
        if new:
            self._followed(lane)

    async def _say_twice(self, lane: str) -> None:
        """The same at the same time is one turn, which both hear."""
        text = self._text()
        body, asked = self._body(text), []
        for way in (self.client.picks(("whole", "stream", "tokens")), self.client.picks(("whole", "stream"))):
            asked.append(asyncio.ensure_future(self._send(lane, body, way)))
            await self.client.pause(1.0)
        told = [await each for each in asked]
        await self.rest()
        before, runs = self.state, await self._runs()
        self.state = await self.read()
        self.sent.pop(lane, None)
        if self.machine.faults.firings:
            return
        new, turn = runs[: len(runs) - len(before["runs"])], turn_of(text)
        if [each and each["said"] for each in told] != [turn[1:]] * 2 or len(new) != 1:
            raise Broken("a message that comes again is answered once", f"{text!r}: {told}, {new}")
        if self.state["lanes"][lane] != [*before["lanes"][lane], *turn]:
            raise Broken("a message that comes again is said once", f"{text!r}: {self.state['lanes'][lane]}")
        await self._run_is_whole(new[0], lane, turn)

    async def _say_for_long(self, lane: str) -> None:
        """Hours go by in the middle of a turn: its stream is whole all the same, and is kept for its time after the
        end."""
        self._made += 1
        text = f'word{self._made} of the client\ncall outside {{"mark": "{self.client.name}-{self._made}"}}'
        path, body = f"/v1/agents/{self.agent_id}/messages/async", self._body(text)
        run = await self._asked("POST", path, body)
        if run is not None:
            await self._first_frame(run["id"])
            self.machine.world.ahead_s += KEPT_S + 60.0
        await self.rest()
        await asyncio.sleep(CLEANED_S)
        if run is not None and not self.machine.faults.firings:
            frames = await self._follow(run["id"], 0)
            numbers = [frame["seq_id"] for frame in frames if has_number(frame)]
            if said_in(frames) != turn_of(text)[1:] or numbers != list(range(2, len(numbers) + 2)):
                raise Broken("a stream is kept for its time", f"{run['id']}: {frames}")
            self.machine.world.ahead_s += KEPT_S
            await asyncio.sleep(CLEANED_S)
            gone = await self.client.ask("POST", f"/v1/runs/{run['id']}/stream", {})
            left = self.machine.disk.query("SELECT count(*) FROM run_events WHERE run_id = ?", run["id"])
            if gone is None or gone.status != 410 or left != [(0,)]:
                told = None if gone is None else gone.status
                raise Broken("a stream is gone after its time", f"{run['id']}: {told}, {left} batches are left")
        self.state = await self.read()
        self.sent.pop(DEFAULT, None)

    async def _first_frame(self, run_id: str) -> None:
        """Waits until something of a run was said."""
        await self.machine.up()
        try:
            async with (
                asyncio.timeout(PATIENCE_S),
                self.client.connection.stream("POST", f"/v1/runs/{run_id}/stream", {"include_pings": False}) as stream,
            ):
                async for _ in stream.events():
                    return
        except ConnectionLost:
            return

    async def _cancel_waiting(self, _lane: str) -> None:
        """Of two runs the second is cancelled while it waits: it says nothing, and the first is answered."""
        path, texts = f"/v1/agents/{self.agent_id}/messages", [self._text(), self._text()]
        made = [await self._asked("POST", f"{path}/async", self._body(text)) for text in texts]
        self._followed(DEFAULT)
        if None in made:
            await self.rest()
            self.state = await self.read()
            return
        told = await self._asked("POST", f"{path}/cancel", {"run_ids": [made[1]["id"]]})
        await self.rest()
        before, self.state = self.state, await self.read()
        new = self.state["lanes"][DEFAULT][len(before["lanes"][DEFAULT]) :]
        if self.machine.faults.firings:
            return
        ends = [(await self.maybe(f"/v1/runs/{run['id']}"))["status"] for run in made]
        frames = await self._follow(made[1]["id"], 0)
        reasons = [frame["stop_reason"] for frame in frames if frame["message_type"] == "stop_reason"]
        if told != {made[1]["id"]: "cancelled"} or ends != ["completed", "cancelled"] or reasons != ["cancelled"]:
            raise Broken("what is cancelled while it waits says nothing", f"{told}, {ends}, {reasons}")
        if new != turn_of(texts[0]):
            raise Broken("what is cancelled while it waits says nothing", f"{new} of {texts}")

    async def _crowd(self, _lane: str) -> None:
        """More messages than the queue holds: the first is answered, so many wait, and the others are refused."""
        texts = [self._text(calls=False) for _ in range(MAILBOX_SIZE + 3)]
        before, wait = self.state, self.client.tosses(0.5)
        path = f"/v1/agents/{self.agent_id}/messages{'' if wait else '/async'}"
        sending = [self.client.ask("POST", path, self._said_by(text)) for text in texts]
        answers = await asyncio.gather(*sending) if wait else [await each for each in sending]
        taken = [text for text, told in zip(texts, answers, strict=True) if told is not None and told.status == 200]
        await self.rest()
        self.state = await self.read()
        self._followed(DEFAULT)
        if self.machine.faults.firings:
            return
        most = MAILBOX_SIZE + 1  # with the one that is answered, which also waits where the agent must be loaded
        if len(taken) != most and not (wait and len(taken) == MAILBOX_SIZE):
            raise Broken("a queue holds what it is said to", f"{taken} of {texts} were taken")
        new = self.state["lanes"][DEFAULT][len(before["lanes"][DEFAULT]) :]
        in_order = taken if not wait else sorted(taken, key=lambda text: new.index(turn_of(text)[0]))
        if new != [said for text in in_order for said in turn_of(text)]:
            raise Broken("messages keep their order", f"{new} and not {taken}")

    async def _compact(self, lane: str) -> None:
        """The model sees less of a conversation then; the history stays as it is."""
        path = f"/v1/conversations/{self._address(lane)}/compact"
        if len(self.state["lanes"][lane]) < SHORT or lane in self.compacted:
            return
        response = await self.client.ask("POST", path, {"agent_id": self.agent_id})
        if response is not None and response.status == 400 and b"too few" in response.body:
            return
        if response is None or response.status != 200:
            self.may_fail(path, None if response is None else response.body)
        else:
            self.state["lanes"][lane].append(SUMMARY)
            self.state["said"].append(SUMMARY)
            self.state["runs"] = (await self.read())["runs"]  # it is a run as well
            await self.check()
        self.state = await self.read()
        self._followed(lane)
        if SUMMARY in self.state["lanes"][lane]:
            self.compacted.add(lane)

    # --- conversations ---------------------------------------------------------------------------------------------

    def _address(self, lane: str) -> str:
        return self.ids.get(lane, DEFAULT)

    async def _open(self, _lane: str) -> None:
        if len(self.state["lanes"]) >= LANES_MAX:
            return
        self._made += 1
        name, apart = f"lane{self._made}", self.client.tosses(0.5)
        body = {"summary": name, "isolated_block_labels": ["human"] if apart else []}
        after = deepcopy(self.state)
        after["lanes"][name] = []
        if apart:
            after["human"][name] = list(after["human"][DEFAULT])
        await self.change("POST", f"/v1/conversations/?agent_id={self.agent_id}", body, after)
        await self.check()

    async def _fork(self, lane: str) -> None:
        """From its end, or up to a message, which a call brings its result along with."""
        if len(self.state["lanes"]) >= LANES_MAX or lane in self.compacted:
            return
        path, said = f"/v1/conversations/{self._address(lane)}/fork?agent_id={self.agent_id}", self.state["lanes"][lane]
        if said and self.client.tosses(0.5):
            listed = await self._listed(lane)
            at = self.client.picks(range(len(listed)))
            path += f"&message_id={listed[at]['id']}"
            while at + 1 < len(said) and said[at + 1].startswith("return"):
                at += 1
            said = said[: at + 1]
        response = await self.client.ask("POST", path)
        if response is None or response.status != 200:
            self.may_fail(path, None if response is None else response.body)
            self.state = await self.read()  # one without a name, if there is one
            return
        self._made += 1
        name, forked = f"fork{self._made}", response.json()["id"]
        await self.client.insist("PATCH", f"/v1/conversations/{forked}", {"summary": name})
        self.state["lanes"][name] = list(said)
        if lane in self.state["human"] and lane != DEFAULT:
            self.state["human"][name] = list(self.state["human"][lane])
        await self.check()

    async def _close(self, lane: str) -> None:
        if lane == DEFAULT or len(self.state["lanes"]) < LANES_MAX:
            return
        after = deepcopy(self.state)
        after["lanes"].pop(lane)
        after["human"].pop(lane, None)
        address = self._address(lane)
        await self.change("DELETE", f"/v1/conversations/{address}", None, after)
        if lane not in self.state["lanes"] and await self.maybe(f"/v1/conversations/{address}") is not None:
            raise Broken("what was deleted is gone", f"{address}")
        self.sent.pop(lane, None)

    async def _empty(self, _lane: str) -> None:
        """All conversations are emptied, and stay."""
        if self.client.tosses(0.3):
            return
        after = {**deepcopy(self.state), "lanes": {lane: list[str]() for lane in self.state["lanes"]}, "said": []}
        await self.change("PATCH", f"/v1/agents/{self.agent_id}/reset-messages", {}, after)
        self.compacted.clear()
        self.sent.clear()

    # --- callbacks -------------------------------------------------------------------------------------------------

    async def _ring(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        told = json.loads(asked.body)
        run_id = told["run_id"]
        ((status, completed_at, metadata),) = self.machine.disk.query(
            "SELECT status, completed_at, metadata FROM runs WHERE id = ?", run_id
        )
        if (told["status"], micros(told["completed_at"]), told["metadata"]) != (
            status,
            completed_at,
            json.loads(metadata),
        ):
            raise Broken("a callback says how its run ended", f"{told}, stored {(status, completed_at, metadata)}")
        self._rung.append((run_id, self.machine.loop.time()))
        await answer.start(self._answers.pop(0) if self._answers else 204, {})

    async def _call_back(self, lane: str) -> None:
        """A callback that is refused comes again after its time, and one that was taken does not."""
        self._answers = [self.client.picks((500, 302, 404)) for _ in range(self.client.picks((0, 1, 2)))]
        tries, text = len(self._answers) + 1, self._text(calls=False)
        body = {**self._body(text), "callback_url": f"http://{self.bell}/done"}
        before, asked = len(self._rung), self.machine.loop.time()
        refusals = list(self._answers)
        await self._turn(DEFAULT, text, body, "async")
        await asyncio.sleep(sum(WAITS_S) + 10.0)
        rung = self._rung[before:]
        if self.machine.faults.firings or DEFAULT not in self.sent:
            return
        run = await self.maybe(f"/v1/runs/{rung[-1][0]}") if rung else None
        known = run and (run["callback_status_code"], run["callback_error"], run["callback_sent_at"] is not None)
        if known != (204, None, True):
            raise Broken("what became of a callback is recorded", f"{run} after {refusals}")
        gaps = [later - earlier for (_, earlier), (_, later) in pairwise(rung)]
        if len(rung) != tries or any(not wait <= gap <= wait + 10.0 for gap, wait in zip(gaps, WAITS_S, strict=False)):
            raise Broken("a callback comes until it is taken", f"{lane} {asked}: {rung} instead of {tries}, {gaps}")

    # --- what can be read ------------------------------------------------------------------------------------------

    async def rest(self) -> None:
        """Waits until no run of the agent is under way."""
        for _ in range(TRIES_MAX):
            if not await self.client.insist("GET", f"/v1/runs/?agent_id={self.agent_id}&active=true"):
                return
            await self.client.pause(3.0)
        raise Broken("every run ends", self.agent_id)

    async def _runs(self) -> list[Any]:
        return await self.client.insist("GET", f"/v1/runs/?agent_id={self.agent_id}&limit=1000")

    async def _listed(self, lane: str) -> list[Any]:
        """The messages of a conversation but its instructions."""
        query = f"limit=1000&order=asc&agent_id={self.agent_id}"
        listed = await self.client.insist("GET", f"/v1/conversations/{self._address(lane)}/messages?{query}")
        return [message for message in listed if message["message_type"] != "system_message"]

    async def _pages_are_the_list(self, lane: str) -> None:
        path = f"/v1/conversations/{self._address(lane)}/messages"
        query = f"agent_id={self.agent_id}"
        one = await self.client.insist("GET", f"{path}?limit=1000&order=asc&{query}")
        ids = list(dict.fromkeys(message["id"] for message in one))
        forth, after = list[str](), ""
        while page := await self.client.insist("GET", f"{path}?limit={PAGE}&order=asc&{query}{after}"):
            forth += dict.fromkeys(message["id"] for message in page)
            after = f"&after={forth[-1]}"
        back, before = list[str](), ""
        while page := await self.client.insist("GET", f"{path}?limit={PAGE}&order=desc&{query}{before}"):
            older = list(dict.fromkeys(message["id"] for message in page))
            back += older if lane != DEFAULT else older[::-1]  # the oldest is first in that of the agent
            before = f"&before={back[-1]}"
        if not forth == ids == back[::-1]:
            raise Broken("the pages of a list are the list", f"{path}: {ids}, {forth} and {back}")

    async def _recompile(self) -> None:
        """The instructions are listed as they were just rebuilt, however often they were listed before."""
        path = f"/v1/agents/{self.agent_id}"
        await self.client.insist("GET", f"{path}/messages?limit=1&order=asc")
        told = await self.client.insist("POST", f"{path}/recompile", {})
        (first,) = await self.client.insist("GET", f"{path}/messages?limit=1&order=asc")
        if first["content"] != told:
            raise Broken("what is rewritten is listed", f"{self.agent_id}: {first['content']!r} and not {told!r}")

    async def read(self) -> Any:
        lanes = {DEFAULT: said_in(await self._listed(DEFAULT))}
        human = {DEFAULT: await self._lines(f"/v1/agents/{self.agent_id}/core-memory/blocks/human")}
        for each in await self.client.insist("GET", f"/v1/conversations/?agent_id={self.agent_id}&limit=100"):
            lane = each["summary"] or each["id"]
            self.ids[lane] = each["id"]
            lanes[lane] = said_in(await self._listed(lane))
            alone = await self.maybe(f"/v1/conversations/{each['id']}")
            for block_id in alone["isolated_block_ids"]:
                human[lane] = await self._lines(f"/v1/blocks/{block_id}")
        said = said_in(await self.client.insist("GET", f"/v1/agents/{self.agent_id}/messages?limit=1000&order=asc"))
        runs = [(run["id"], run["status"], run["stop_reason"]) for run in reversed(await self._runs())]
        return {"lanes": lanes, "said": said, "human": human, "runs": runs}

    async def _lines(self, path: str) -> list[str]:
        return (await self.maybe(path))["value"].split("\n")

    async def check(self) -> None:
        await super().check()
        await self._pages_are_the_list(self.client.picks(list(self.state["lanes"])))
        await self._recompile()
        words = [said.split()[1] for said in self.state["said"] if said.startswith("user word")]
        if not words:
            return
        word = self.client.picks(words)
        found = await self.client.insist("POST", "/v1/messages/search", {"query": word, "search_mode": "fts"})
        texts = [f"user {one['content']}" for one in found if one["message_type"] == "user_message"]
        wanted = [said for said in self.state["said"] if word in said.split() and said.startswith("user")]
        if sorted(texts) != sorted(wanted):
            raise Broken("a search finds what was said", f"{word}: {texts} and not {wanted}")


def _told(frames: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a whole stream says, and its end."""
    usage = next((frame for frame in frames if frame["message_type"] == "usage_statistics"), {})
    return {"said": said_in(frames), "usage": usage}
