"""A town of agents of several organisations that all say nearly the same things, under names made to confuse.

Every text holds a secret of its owner, so that whatever a search gives back can be told to be somebody's.
"""

import random
import re
import struct
from dataclasses import dataclass, field, replace
from typing import Any

from kelpie.core.access.callers import Caller
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.ids import AgentId, ArchiveId, BlockId, MessageId, OrganizationId, PassageId, UserId
from kelpie.core.memory.blocks import Block
from kelpie.core.memory.passages import Archive, Passage
from kelpie.search import vector_rows
from kelpie.search.vector_search import vector
from kelpie.storage.agents import agents
from kelpie.storage.archives import archives, passages
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.storage.conversations import messages
from kelpie.world.database import Tx
from tests.tools.workshop import NOW, SOMEBODY, make_agent

MODEL = "test/embed"
DIMENSIONS = 16
ORGANIZATIONS = tuple(OrganizationId(f"org-{n}") for n in (1, 10, 11))
HOSTILE = (
    "run", "running", "runs", "runner", "archive", "archives", "archiving", "agent-1", "agent-10", "agent 1",
    "'; DROP TABLE messages; --", "' OR '1'='1", '" OR "a" = "a', "search_text", "scope:agent-1", "kind : message",
    "NEAR(secret run, 5)", "secret*", "^secret", "-secret", "{text} : secret", "AND OR NOT", "(", '"', "''", "\\",
    "%", "_",
    "rowid:1", "NULL", "😀", "👩‍👩‍👧‍👦", "\u202esecret", "مرحبا secret", "שלום",
    "İstanbul", "ﬁle", "e\u0301té", "été", "\u200b", "\ufeff",
    "a" * 200, "org-1", "org-10", "default", "../..", "\t\n", "ключ", "秘密", "secret",
)  # fmt: skip
_SECRET = re.compile(r"owner(\d+)end")


def vector_of(text: str) -> bytes:
    """Everything is near to everything: only the last numbers differ."""
    rng = random.Random(text)
    return struct.pack(f"<{DIMENSIONS}f", *([1.0] * 8), *(rng.random() - 0.5 for _ in range(8)))


@dataclass
class Inhabitant:
    number: int
    agent: Agent
    archive: ArchiveId
    readers: set[int] = field(default_factory=set[int])  # whose texts it may see

    @property
    def caller(self) -> Caller:
        return Caller(UserId("user-1"), self.agent.organization_id)


class Town:
    def __init__(self, seed: int, size: int) -> None:
        self.rng = random.Random(seed)
        self.people = [self._inhabitant(number) for number in range(size)]
        for one in self.people:
            shared = self.rng.random() < 0.1 and one.number > 0
            other = self.people[self.rng.randrange(one.number)] if shared else one
            if shared and other.agent.organization_id == one.agent.organization_id:
                one.archive = other.archive

    def _inhabitant(self, number: int) -> Inhabitant:
        agent = make_agent(AgentId(f"agent-{number}"))
        organization = self.rng.choice(ORGANIZATIONS)
        agent = replace(agent, name=self.rng.choice(HOSTILE), organization_id=organization)
        return Inhabitant(number, agent, ArchiveId(f"archive-{number}"))

    def hostile(self) -> str:
        return " ".join(self.rng.choice(HOSTILE) for _ in range(self.rng.randint(1, 3)))

    def build(self, tx: Tx) -> None:
        """Writes everybody, with what they said and stored."""
        for one in self.people:
            agents.create(tx, one.agent)
            self._say(tx, one)
            self._label(tx, one)
            self._store(tx, one)

    def _text(self, one: Inhabitant) -> str:
        return f"{self.hostile()} secret owner{one.number}end running"

    def _say(self, tx: Tx, one: Inhabitant) -> None:
        said = [
            Message(MessageId(f"message-{one.number}-{n}"), one.agent.id, role, NOW + n, (Text(self._text(one)),))
            for n, role in enumerate((Role.user, Role.assistant))
        ]
        messages.append(tx, said)
        vector_rows.put_many(tx, "message", {row.id: (vector(MODEL, vector_of(row.said)),) for row in said})

    def _label(self, tx: Tx, one: Inhabitant) -> None:
        block = Block(BlockId(f"block-{one.number}"), "human", self._text(one), NOW, NOW)
        blocks.insert(tx, (replace(block, organization_id=one.agent.organization_id),), SOMEBODY)
        block_attachments.attach(tx, one.agent.id, block.id)

    def _store(self, tx: Tx, one: Inhabitant) -> None:
        organization = one.agent.organization_id
        if one.archive == f"archive-{one.number}":
            name = self.rng.choice(HOSTILE)
            archives.insert(tx, Archive(one.archive, name, NOW, NOW, organization_id=organization))
        archives.attach(tx, one.agent.id, one.archive)
        tags = tuple({self.rng.choice(HOSTILE) for _ in range(2)})
        passage = Passage(
            PassageId(f"passage-{one.number}"),
            one.archive,
            self._text(one),
            NOW,
            NOW,
            tags,
            organization_id=organization,
        )
        passages.insert(tx, passage, (vector(MODEL, vector_of(passage.text)),))

    # --- whose is it ---------------------------------------------------------------------------------------------

    def check(self, texts: list[str], allowed: set[int], what: Any) -> int:
        """That every text is of somebody who may be seen; gives how many there were."""
        for text in texts:
            owner = int(_SECRET.findall(text)[0])
            assert owner in allowed, f"{what} gave out what belongs to {owner}: {text!r}"
        return len(texts)

    def of_organization(self, organization: OrganizationId) -> set[int]:
        return {one.number for one in self.people if one.agent.organization_id == organization}

    def of_archive(self, archive: ArchiveId) -> set[int]:
        return {one.number for one in self.people if one.archive == archive}
