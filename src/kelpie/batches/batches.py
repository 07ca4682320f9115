"""Batches API: create, read and cancel batches, and wait for their end."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from kelpie.agent.inbox import send_preparation
from kelpie.agent.inbox.cancel import Cancellations
from kelpie.agent.turn.send_request import SendRequest
from kelpie.batches import items
from kelpie.batches.runner import BatchRunner
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.conversations.batches import (
    ACTIVE_MAX,
    CANCELLED,
    PARALLEL,
    TOTAL,
    BatchItem,
    BatchProgress,
    ItemStatus,
)
from kelpie.core.conversations.jobs import ACTIVE, Job, JobType
from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.conversations.runs import Run
from kelpie.core.errors import Conflict, InvalidInput, StorageError
from kelpie.core.ids import AgentId, ConversationId, JobId, OrganizationId
from kelpie.core.paging import PAGE_BYTES_MAX, Page
from kelpie.core.settings.settings import Settings
from kelpie.llm.routing.models import Models
from kelpie.storage.accounts import row_ownership
from kelpie.storage.conversations import conversations, messages
from kelpie.storage.runs import batches, runs, unfinished
from kelpie.storage.runs.batches import ItemInput
from kelpie.storage.runs.input import RunInput
from kelpie.world.database import Tx
from kelpie.world.world import World

MESSAGES_MAX = 200  # of one run that a result shows
EXCERPT_MESSAGES = 3  # at the end of a run
RESULTS_READ = 10  # results that are read at once
LOOK_S = 2.0  # a client that waits is told of an end that another server brought about within this time
CANCEL_S = 10.0  # for the outcome of the runs that a cancelled batch had
REQUEST = "request"  # in the metadata of its job: the digest of a request that can come again
CANCELLED_TEXT = "The batch was cancelled before this item was sent."


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item as a client describes it; the conversation is in its send. `where` names it in errors."""

    agent_id: AgentId
    send: SendRequest
    where: str


@dataclass(frozen=True, slots=True)
class RepeatableRequest:
    """A request that its client may send again: the key under which it does, and the digest of what it asks for."""

    key: str
    digest: str

    def batch_id(self, organization: OrganizationId, agent_id: AgentId | None) -> JobId:
        """The same for the same key, so that the database refuses a second batch."""
        name = f"{organization}\0{agent_id or ''}\0{self.key}".encode()
        return JobId(f"{JobId.prefix}-{UUID(bytes=hashlib.sha256(name).digest()[:16], version=4)}")


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The outcome of an item. `messages` is None when there were too many before it."""

    item: BatchItem
    run: Run | None
    messages: tuple[Message, ...] | None


@dataclass(frozen=True, slots=True)
class ItemExcerpt:
    """An item with the text of its input, and the last messages of its run, newest first."""

    item: BatchItem
    given: str
    last: Sequence[Message]


class Batches:
    """Batches of the caller's organization."""

    def __init__(
        self,
        world: World,
        models: Models,
        settings: Settings,
        runner: BatchRunner,
        cancellations: Cancellations,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._models = models
        self._settings = settings
        self._runner = runner
        self._cancellations = cancellations
        self._user = caller.user_id
        self._organization: OrganizationId = caller.organization_id

    async def create(
        self,
        new: Sequence[NewItem],
        *,
        agent_id: AgentId | None = None,
        parallel: bool = False,
        callback_url: str | None = None,
        repeatable: RepeatableRequest | None = None,
    ) -> Job:
        """Checks all items, then stores them; the runner takes it from there. `agent_id` is set if all are for one.
        A request that comes again returns the batch that it made.

        Raises NotFound, InvalidInput, Conflict, QuotaExceeded, ModelError, StorageError.
        """
        prepared = [replace(each, send=await self._prepared(each)) for each in new]
        now, batch_id = self._world.clock.now(), self._world.ids.new(JobId)
        metadata: dict[str, Any] = {PARALLEL: parallel, TOTAL: len(prepared)}
        if repeatable is not None:
            batch_id = repeatable.batch_id(self._organization, agent_id)
            metadata[REQUEST] = repeatable.digest
        job = Job(
            id=batch_id,
            created_at=now,
            updated_at=now,
            job_type=JobType.batch,
            background=True,
            agent_id=agent_id,
            metadata=metadata,
            callback_url=callback_url,
            created_by_id=self._user,
            last_updated_by_id=self._user,
        )
        rows = [self._row(batch_id, place, each, now) for place, each in enumerate(prepared)]

        def write(tx: Tx) -> Job:
            if repeatable is not None and (known := batches.find(tx, batch_id)) is not None:
                return _same_request(known[0], repeatable)
            for item, _ in rows:
                row_ownership.agent(tx, self._organization, item.agent_id)
                _check_conversation(tx, item)
            if batches.count_active(tx, self._organization) >= ACTIVE_MAX:
                raise Conflict(
                    f"{ACTIVE_MAX} batches have not ended, which is the maximum. Wait for some, or cancel some."
                )
            batches.insert(tx, job, self._organization, rows)
            return job

        made = await self._world.database.transact(write)
        self._runner.wake()
        return made

    async def get(self, agent_id: AgentId | None, batch_id: JobId) -> tuple[Job, BatchProgress]:
        """A batch of this agent, or any. Raises NotFound."""
        return await self._world.database.read(lambda tx: self._found(tx, agent_id, batch_id))

    async def page(self, wanted: Page, *, active_only: bool = False) -> list[tuple[Job, BatchProgress]]:
        """Batches of the organization."""

        def read(tx: Tx) -> list[tuple[Job, BatchProgress]]:
            found = batches.page(tx, self._organization, wanted, active_only=active_only)
            return [(job, batches.progress(tx, job.id)) for job in found]

        return await self._world.database.read(read)

    async def results(self, agent_id: AgentId | None, batch_id: JobId) -> tuple[Job, BatchProgress, list[ItemResult]]:
        """A batch with the outcomes of its items, in order, and the messages of their runs as far as an answer can hold
        them. Raises NotFound.
        """

        def read(tx: Tx) -> tuple[Job, BatchProgress, list[BatchItem]]:
            return *self._found(tx, agent_id, batch_id), batches.items(tx, batch_id)

        job, done, found = await self._world.database.read(read)
        results: list[ItemResult] = []
        left = PAGE_BYTES_MAX
        for start in range(0, len(found), RESULTS_READ):
            piece = found[start : start + RESULTS_READ]
            for result in await self._world.database.read(lambda tx, some=piece: _results(tx, some)):
                left -= sum(_size(message) for message in result.messages or ())
                results.append(result if left >= 0 else replace(result, messages=None))
        return job, done, results

    async def excerpts(self, batch_id: JobId, after: int, most: int) -> list[ItemExcerpt]:
        """Items after a place, in order, with what was asked and answered. Raises NotFound."""

        def read(tx: Tx) -> list[ItemExcerpt]:
            batches.get(tx, self._organization, None, batch_id)
            return [_excerpt(tx, item) for item in batches.items_after(tx, batch_id, after, most)]

        return await self._world.database.read(read)

    async def messages(self, batch_id: JobId, agent_id: AgentId | None, wanted: Page) -> list[Message]:
        """Messages of its runs. Raises NotFound."""

        def read(tx: Tx) -> list[Message]:
            batches.get(tx, self._organization, None, batch_id)
            return batches.messages_of(tx, batch_id, agent_id, wanted)

        return await self._world.database.read(read)

    async def wait(self, batch_id: JobId, seconds: float) -> bool:
        """Waits for the end of a batch; False if it has not ended within this time. Raises NotFound."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    change = self._runner.change
                    if await self._has_ended(batch_id):
                        return True
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await change.wait()
        return False

    async def cancel(self, agent_id: AgentId | None, batch_id: JobId) -> tuple[Job, BatchProgress]:
        """Sends no further items, cancels the runs of those that were sent, and returns the batch as it is then.

        Raises NotFound, StorageError, and Conflict when it has ended.
        """
        now = self._world.clock.now()
        await self.get(agent_id, batch_id)

        def write(tx: Tx) -> list[BatchItem]:
            job = batches.locked(tx, batch_id)
            if job is None or job.status not in ACTIVE:
                status = "deleted" if job is None else job.status.value
                raise Conflict(f"{batch_id} is already {status} and cannot be cancelled.")
            batches.change(tx, replace(job, metadata={**job.metadata, CANCELLED: True}, updated_at=now))
            going_on = batches.unsettled(tx, batch_id)
            for item in going_on:
                if item.status is ItemStatus.waiting:
                    batches.replace(tx, items.ended(item, ItemStatus.cancelled, now, CANCELLED_TEXT))
            return [item for item in going_on if item.status is ItemStatus.running]

        running = await self._world.database.transact(write)
        by_agent: dict[AgentId, list[str]] = {}
        for item in running:
            by_agent.setdefault(item.agent_id, []).append(item.run_id or "")
        for each, run_ids in by_agent.items():
            await self._cancellations.of_agent(each, run_ids)
        self._runner.wake()
        await self.wait(batch_id, CANCEL_S)
        return await self.get(None, batch_id)

    def _found(self, tx: Tx, agent_id: AgentId | None, batch_id: JobId) -> tuple[Job, BatchProgress]:
        if agent_id is not None:
            row_ownership.agent(tx, self._organization, agent_id)
        return batches.get(tx, self._organization, agent_id, batch_id), batches.progress(tx, batch_id)

    async def _has_ended(self, batch_id: JobId) -> bool:
        """False as well while the database cannot say."""
        try:
            job, _ = await self.get(None, batch_id)
        except StorageError:
            return False
        return job.status not in ACTIVE

    async def _prepared(self, new: NewItem) -> SendRequest:
        """The messages with their images read and their model found. Raises what that raises."""
        if send_preparation.is_plain(new.send):
            return new.send
        shared = self._world, self._models, self._settings, self._organization
        try:
            return await send_preparation.prepare(*shared, new.agent_id, new.send)
        except InvalidInput as error:
            raise InvalidInput(f"{new.where}.{error.field}", error.remedy) from error

    def _row(self, batch_id: JobId, place: int, new: NewItem, now: int) -> tuple[BatchItem, ItemInput]:
        item = BatchItem(
            batch_id=batch_id,
            place=place,
            organization_id=self._organization,
            agent_id=new.agent_id,
            status=ItemStatus.waiting,
            updated_at=now,
            conversation_id=ConversationId(new.send.conversation) if new.send.conversation else None,
        )
        named = tuple(
            message if message.otid else replace(message, otid=f"{batch_id}-{place}-{number}")
            for number, message in enumerate(new.send.messages)
        )
        config: dict[str, Any] = dict(new.send.request_config)
        return item, ItemInput(replace(new.send, messages=named).given, config)


def _same_request(known: Job, repeatable: RepeatableRequest) -> Job:
    if known.metadata.get(REQUEST) != repeatable.digest:
        raise Conflict("This Idempotency-Key was used for another batch. Use a new one for each batch.")
    return known


def _check_conversation(tx: Tx, item: BatchItem) -> None:
    if item.conversation_id is None:
        return
    if conversations.get(tx, item.organization_id, item.conversation_id).agent_id != item.agent_id:
        raise InvalidInput("conversation_id", f"{item.conversation_id} is a conversation of another agent")


def _results(tx: Tx, some: Sequence[BatchItem]) -> list[ItemResult]:
    found = {run.id: run for run in runs.get_many(tx, [item.run_id for item in some if item.run_id is not None])}
    page = Page(MESSAGES_MAX, descending=False, bytes_max=PAGE_BYTES_MAX)
    return [
        ItemResult(
            item,
            None if item.run_id is None else found.get(item.run_id),
            () if item.run_id is None else tuple(messages.page_of_run(tx, item.run_id, page)),
        )
        for item in some
    ]


def _excerpt(tx: Tx, item: BatchItem) -> ItemExcerpt:
    if item.status is ItemStatus.waiting:
        return ItemExcerpt(item, _text(batches.input_of(tx, item).given), ())
    if item.run_id is None or not runs.get_many(tx, [item.run_id]):  # its run was never made, or is deleted
        return ItemExcerpt(item, "", ())
    last = messages.page_of_run(tx, item.run_id, Page(EXCERPT_MESSAGES))
    return ItemExcerpt(item, _text(unfinished.given(tx, item.run_id)), last)


def _text(given: RunInput) -> str:
    return "\n".join(part.text for message in given.messages for part in message.content if isinstance(part, Text))


def is_input(row: Message) -> bool:
    """True for a message that a client sent, which is no part of an answer."""
    return row.otid is not None and row.role is not Role.summary


def _size(message: Message) -> int:
    """About how many bytes a message takes in an answer."""
    return 500 + sum(len(str(part)) for part in (*message.content, *message.tool_calls, *message.tool_returns))
