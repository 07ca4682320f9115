"""Background runs API: accept one, and follow its events, from the beginning or after a disconnect.

A run is stored with its input before it is acknowledged. Its events are read from the database and nowhere else, so
every client sees the same, however late or slow it is, and holds up no other.
"""

from collections.abc import AsyncGenerator

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.events import event_json
from kelpie.agent.events.event_notifier import RunNotifier
from kelpie.agent.events.turn_events import StreamCut, TurnEnded, TurnEvent
from kelpie.agent.inbox import run_acceptance, send_preparation
from kelpie.agent.inbox.run_queue import RunQueue
from kelpie.agent.inbox.send_from_page import check_page
from kelpie.agent.inbox.send_from_tool import on_behalf
from kelpie.agent.turn import duplicate_sends
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.access.callers import Caller
from kelpie.core.conversations.runs import UNFINISHED, Run, RunStatus
from kelpie.core.errors import ConversationBusy, Gone, InvalidInput, NotFound
from kelpie.core.ids import AgentId, ConversationId, RunId
from kelpie.core.settings.settings import Settings
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.llm.routing.models import Models
from kelpie.storage.accounts import row_ownership
from kelpie.storage.runs import client_ids, runs, unfinished
from kelpie.storage.runs import events as run_events
from kelpie.storage.runs.events import Batch
from kelpie.storage.runs.unfinished import StoredRun
from kelpie.world.database import Tx
from kelpie.world.world import World

LOOK_S = 2.0  # a follower reads again after this time even without a notification


class BackgroundRuns:
    """Background runs of the caller's organization."""

    def __init__(
        self,
        world: World,
        models: Models,
        settings: Settings,
        run_queue: RunQueue,
        notifier: RunNotifier,
        quotas: Quotas,
        caller: Caller,
        batches_read: int,
    ) -> None:
        self._world = world
        self._models = models
        self._settings = settings
        self._batches_read = batches_read
        self._run_queue = run_queue
        self._notifier = notifier
        self._quotas = quotas
        self._organization = caller.organization_id
        self._passport = caller.passport
        self._web_page = caller.web_page

    async def accept(self, agent_id: AgentId, send: SendRequest) -> Run:
        """Stores a run that its lane will play; the same messages under the same ids are the run they were before.

        Raises NotFound, Forbidden, AgentStopped, ConversationBusy, PendingApproval, MailboxFull, QuotaExceeded,
        StorageError, and Conflict for tool code that sends to an agent which waits for it.
        """
        if self._passport is not None:
            send = on_behalf(send, agent_id, self._passport)
        if self._web_page:
            check_page(send, self._settings.max_steps)
        if not send_preparation.is_plain(send):
            shared = self._world, self._models, self._settings, self._organization
            send = await send_preparation.prepare(*shared, agent_id, send, self._passport)
        run = Run(
            id=self._world.ids.new(RunId),
            agent_id=agent_id,
            status=RunStatus.created,
            created_at=self._world.clock.now(),
            conversation_id=ConversationId(send.conversation) if send.conversation else None,
            background=True,
            metadata=send.metadata,
            request_config=send.request_config,
            callback_url=send.callback_url,
        )

        given, keeper = send.given, self._run_queue.keeper(agent_id, send.conversation) if send.alone else None

        def write(tx: Tx) -> Run:
            row_ownership.agent(tx, self._organization, agent_id)
            if (same := duplicate_sends.find(tx, agent_id, send.conversation, given)) is not None and same.background:
                return same
            if send.alone and (busy := keeper or unfinished.newest_in_background(tx, agent_id, send.conversation)):
                raise ConversationBusy(busy)
            run_acceptance.accept(tx, run, self._organization, given, self._quotas, self._settings.mailbox_size)
            return run

        stored = await self._world.database.transact(write)
        if stored.status in UNFINISHED:
            self._run_queue.submit(StoredRun(stored.id, agent_id, stored.conversation_id))
        return stored

    async def find(self, run_id: RunId) -> Run:
        """A run whose stream is kept. Raises NotFound, InvalidInput for one that keeps none, Gone after its time."""
        run = await self._world.database.read(lambda tx: self._run(tx, run_id))
        if not run.background:
            raise InvalidInput(
                "run_id", "this is not a background run, so its stream is not stored; read its messages instead"
            )
        kept = int(self._settings.stream_kept_s * MICROS_PER_SECOND)
        if run.completed_at is not None and run.completed_at + kept < self._world.clock.now():
            raise Gone(f"The stream of {run_id} is no longer stored. Read the messages of the run instead.")
        return run

    async def latest(self, agent_id: AgentId, conversation: str, otid: str | None) -> Run:
        """The run of a message's id in this conversation, or without an id the newest that has not ended.

        Raises NotFound, InvalidInput.
        """

        def read(tx: Tx) -> RunId | None:
            row_ownership.agent(tx, self._organization, agent_id)
            if otid is not None:
                return next(iter(client_ids.newest(tx, agent_id, conversation, otid, 1)), None)
            return unfinished.newest_in_background(tx, agent_id, conversation)

        run_id = await self._world.database.read(read)
        if run_id is None:
            if otid is not None:
                raise InvalidInput(
                    "otid", "no run of this conversation has a message with this otid; check it, or give the run_id"
                )
            raise InvalidInput(
                "run_id", "No active runs found for this conversation. Only background runs can be followed."
            )
        return await self.find(run_id)

    async def follow(self, run_id: RunId) -> AsyncGenerator[TurnEvent, None]:
        """The events of the run, past and future, to its end. Raises NotFound, or StorageError when it stands still."""
        number = 0
        with self._notifier.listen(run_id) as subscription:
            while True:
                subscription.clear()
                batches, status = await self._world.database.read(lambda tx, n=number: self._look(tx, run_id, n))
                for batch in batches:
                    number = batch.number
                    for data in batch.events:
                        event = event_json.from_json(data)
                        yield event
                        if isinstance(event, TurnEnded | StreamCut):
                            return
                if batches:
                    continue
                if status not in UNFINISHED:
                    raise NotFound("Stream", run_id)  # swept in the meantime
                if subscription.trouble is not None:
                    raise subscription.trouble
                await subscription.wait(LOOK_S)

    def _run(self, tx: Tx, run_id: RunId) -> Run:
        row_ownership.run(tx, self._organization, run_id)
        return runs.get(tx, run_id)

    def _look(self, tx: Tx, run_id: RunId, number: int) -> tuple[list[Batch], RunStatus]:
        return run_events.after(tx, run_id, number, self._batches_read), runs.get(tx, run_id).status
