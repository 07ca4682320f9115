"""How well search finds what is asked for: recall and nDCG over a file of conversations and questions, through the
public API of a live server. Prints JSON.

    python bench/recall.py FILE                                 about ten minutes for 1,000 questions
    python bench/recall.py FILE --places batch --modes hybrid   some of it
    python bench/recall.py FILE --tree DIR                      the server of another checkout

FILE is JSON, plain or compressed by gzip: a list of conversations, each with `sessions` (`date`, `turns` with
`id`, `speaker`, `text`) and `questions` (`question`, `evidence`: ids of turns, `category`). It is read and never kept.
Every turn is stored as `speaker: text`, in four places: `passages` are stored one by one and know no neighbours,
`batch` are the same in one request for each conversation, `dated` are a batch whose passages have the times of their
sessions, and `messages` are those of an agent. Each question is one search for 20 results. `R@k` is the share of the
evidence among the first k, and `nDCG@10` counts every evidence as 1; both are means over the questions that have
evidence. `interval` is that of 95 % by drawing the questions again 2,000 times. `in_another_mode` counts searches that
the server made in another mode than the requested one, because an embedding failed; it should be 0.
"""

import argparse
import asyncio
import gzip
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from load.server import Started

LIMIT, FIRST = 20, 10
DRAWS = 2000
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open domain", 4: "single hop", 5: "adversarial"}
PLACES = ("passages", "batch", "dated", "messages")
MODES = ("fts", "vector", "hybrid")
DATE_FORMATS = ("%I:%M %p on %d %B, %Y", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d")
EMBEDDED_S = 1800.0

Found = tuple[float, float, float]  # R@10, R@20 and nDCG@10 of a question


@dataclass(frozen=True)
class Turn:
    id: str
    text: str
    at: str


@dataclass(frozen=True)
class Question:
    text: str
    evidence: frozenset[str]
    category: str


@dataclass(frozen=True)
class Conversation:
    name: str
    turns: list[Turn]
    questions: list[Question]


def read(file: Path) -> list[Conversation]:
    raw = file.read_bytes()
    data: list[Any] = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    return [_conversation(f"conversation {number}", each) for number, each in enumerate(data, 1)]


def _conversation(name: str, data: Mapping[str, Any]) -> Conversation:
    turns = [
        Turn(turn["id"], f"{turn['speaker']}: {turn['text']}", _moment(session["date"]))
        for session in data["sessions"]
        for turn in session["turns"]
    ]
    asked = [
        Question(each["question"], frozenset(each["evidence"]), CATEGORIES.get(each["category"], "other"))
        for each in data["questions"]
    ]
    return Conversation(name, turns, [each for each in asked if each.evidence])


def _moment(date: str) -> str:
    for form in DATE_FORMATS:
        try:
            return datetime.strptime(date, form).replace(tzinfo=UTC).isoformat()
        except ValueError:
            continue
    raise SystemExit(f"'{date}' is not a date in any of these forms: {', '.join(DATE_FORMATS)}")


class Place:
    """Where the turns of one conversation are stored, and how they are searched."""

    def __init__(self, client: httpx.AsyncClient, kind: str, conversation: Conversation) -> None:
        self._client, self._kind, self._conversation = client, kind, conversation
        self._of_text: dict[str, list[str]] = {}
        for turn in conversation.turns:
            self._of_text.setdefault(turn.text, []).append(turn.id)
        self._id = ""
        self.otherwise = 0  # searches that were made in another mode than the requested one

    async def fill(self) -> None:
        if self._kind == "messages":
            await self._say()
            return
        self._id = (await self._post("/v1/archives/", {"name": self._conversation.name}))["id"]
        dated = self._kind == "dated"
        bodies = [{"text": turn.text} | ({"created_at": turn.at} if dated else {}) for turn in self._conversation.turns]
        if self._kind == "passages":
            for body in bodies:
                await self._post(f"/v1/archives/{self._id}/passages", body)
        else:
            await self._post(f"/v1/archives/{self._id}/passages/batch", {"passages": bodies})
        await self._until(self._is_archive_embedded)

    async def _is_archive_embedded(self) -> bool:
        """A busy machine may store passages before it has embedded them."""
        answer = await self._client.get(f"/v1/archives/{self._id}")
        progress = answer.json()["kelpie_embedding"]
        return progress["done"] == progress["total"] == len(self._conversation.turns)

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + EMBEDDED_S
        while not await holds():
            if time.monotonic() > deadline:
                raise SystemExit("the texts were not embedded in time")
            await asyncio.sleep(1.0)

    async def _say(self) -> None:
        """The messages of an agent; their vectors are made in the background, so this waits until all are there."""
        self._id = (await self._post("/v1/agents/", {"model": "openai/gpt-4o-mini"}))["id"]
        turns = self._conversation.turns
        said = [{"role": ("user", "assistant")[number % 2], "content": turn.text} for number, turn in enumerate(turns)]
        body = {"provider": "bench", "model": "none", "request_messages": said, "response_dict": {}}
        await self._post(f"/v1/agents/{self._id}/messages/capture", body)
        await self._until(self._are_messages_embedded)

    async def _are_messages_embedded(self) -> bool:
        turns, before = self._conversation.turns, self.otherwise
        found = await self.search(turns[0].text, "vector", 1000)
        by_vectors, self.otherwise = self.otherwise == before, 0
        return by_vectors and len(found) == len(turns)

    async def search(self, query: str, mode: str, limit: int = LIMIT) -> list[str]:
        """The ids of the turns that were found, best first; turns with the same text stand for each other."""
        asked: dict[str, Any] = {"query": query, "limit": limit, "search_mode": mode}
        if self._kind == "messages":
            answer = await self._answer("/v1/messages/search", asked | {"agent_id": self._id})
            texts = [each["content"] for each in answer.json()]
            used = answer.headers["X-Kelpie-Search-Mode"]
        else:
            answer = await self._answer("/v1/passages/search", asked | {"archive_id": self._id})
            texts = [each["passage"]["text"] for each in answer.json()]
            used = answer.json()[0]["metadata"]["search_mode"] if texts else mode
        self.otherwise += used != mode
        left = {text: list(ids) for text, ids in self._of_text.items()}
        return [left[text].pop(0) for text in texts if left.get(text)]

    async def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        return (await self._answer(path, body)).json()

    async def _answer(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        answer = await self._client.post(path, json=body)
        if answer.status_code != httpx.codes.OK:
            raise SystemExit(f"{path} answered {answer.status_code}: {answer.text}")
        return answer


def scored(found: Sequence[str], evidence: frozenset[str]) -> Found:
    gains = [each in evidence for each in found]
    ideal = sum(1 / math.log2(place + 2) for place in range(min(FIRST, len(evidence))))
    gained = sum(gain / math.log2(place + 2) for place, gain in enumerate(gains[:FIRST]))
    return sum(gains[:FIRST]) / len(evidence), sum(gains[:LIMIT]) / len(evidence), gained / ideal


def summary(found: Sequence[Found]) -> dict[str, Any]:
    columns = list(zip(*found, strict=True))
    names = (f"R@{FIRST}", f"R@{LIMIT}", f"nDCG@{FIRST}")
    rng, size = random.Random(7), len(found)
    drawn: list[tuple[float, float]] = []
    for _ in range(DRAWS):
        some = rng.choices(found, k=size)
        drawn.append((statistics.fmean(each[0] for each in some), statistics.fmean(each[2] for each in some)))
    low, high = int(DRAWS * 0.025), int(DRAWS * 0.975) - 1
    intervals = {
        name: [round(sorted(each[at] for each in drawn)[edge], 3) for edge in (low, high)]
        for at, name in enumerate((names[0], names[2]))
    }
    means = {name: round(statistics.fmean(column), 3) for name, column in zip(names, columns, strict=True)}
    return {"questions": size, **means, "interval": intervals}


async def measure(options: argparse.Namespace, client: httpx.AsyncClient) -> dict[str, Any]:
    conversations, out = read(options.file), dict[str, Any]()
    for kind in options.places:
        rows: dict[str, list[tuple[str, str, Found]]] = {mode: [] for mode in options.modes}
        otherwise = 0
        for conversation in conversations:
            place = Place(client, kind, conversation)
            await place.fill()
            for question in conversation.questions:
                for mode in options.modes:
                    found = scored(await place.search(question.text, mode), question.evidence)
                    rows[mode].append((conversation.name, question.category, found))
            otherwise += place.otherwise
            print(f"{kind}: {conversation.name} is done", file=sys.stderr)
        out[kind] = {mode: _tables(some) for mode, some in rows.items()} | {"in_another_mode": otherwise}
    return out


def _tables(rows: Sequence[tuple[str, str, Found]]) -> dict[str, Any]:
    by_conversation, by_category = dict[str, list[Found]](), dict[str, list[Found]]()
    for conversation, category, found in rows:
        by_conversation.setdefault(conversation, []).append(found)
        by_category.setdefault(category, []).append(found)
    return {
        "all": summary([found for *_, found in rows]),
        "by_conversation": {name: summary(found) for name, found in by_conversation.items()},
        "by_question_type": {name: summary(found) for name, found in sorted(by_category.items())},
    }


async def served(options: argparse.Namespace) -> dict[str, Any]:
    house = Started(0.0, options.tree)
    try:
        await house.ready_s()
        async with httpx.AsyncClient(base_url=house.url, timeout=600) as client:
            return await measure(options, client)
    finally:
        house.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--places", nargs="+", choices=PLACES, default=list(PLACES))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--tree", type=Path)
    print(json.dumps(asyncio.run(served(parser.parse_args())), indent=1))


if __name__ == "__main__":
    main()
