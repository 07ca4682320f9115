"""Webhooks API: create, change and read webhooks of an agent, and take what other programs deliver to them.

A delivery is stored as a background run before it is acknowledged. One that comes again with the same id is the run
that it was before, so a program may repeat it after a time-out.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from kelpie.accounts import credentials
from kelpie.agent.inbox.background_runs import BackgroundRuns
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.conversations.messages import NewMessage, Role, Text
from kelpie.core.conversations.runs import Run
from kelpie.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from kelpie.core.ids import AgentId, ConversationId, HookId
from kelpie.core.paging import Page
from kelpie.core.settings.settings import Settings
from kelpie.core.triggers.webhooks import HOOKS_MAX, NO_HOOK, Webhook
from kelpie.storage.accounts import row_ownership
from kelpie.storage.conversations import conversations
from kelpie.storage.runs import client_ids, runs
from kelpie.storage.triggers import hooks
from kelpie.triggers.webhook_text import readable
from kelpie.world.database import Tx
from kelpie.world.world import World

# Headers with which programs name a delivery, in lower case; the first that is there counts.
DELIVERY_HEADERS = (
    "idempotency-key",
    "webhook-id",
    "svix-id",
    "x-github-delivery",
    "x-gitea-delivery",
    "x-gitlab-event-uuid",
    "x-shopify-webhook-id",
    "x-delivery-id",
)

NO_CONVERSATION = "The conversation of this webhook was deleted. Choose another one for it, or none."


class Webhooks:
    """Webhooks of the caller's organization. `changed` is called when a token stops working."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        background_runs: BackgroundRuns,
        changed: Callable[[], None],
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._settings = settings
        self._background_runs = background_runs
        self._changed = changed
        self._caller = caller
        self._organization = caller.organization_id

    async def create(
        self, agent_id: AgentId, name: str, conversation_id: ConversationId | None, instructions: str | None
    ) -> tuple[Webhook, str]:
        """The webhook and its token, which is never shown again. Raises NotFound, InvalidInput, Conflict."""
        now = self._world.clock.now()
        credential = credentials.fresh(HookId, self._world.ids)
        hook = Webhook(
            HookId(credential.id), self._organization, agent_id, name, now, now, conversation_id, instructions
        )

        def write(tx: Tx) -> None:
            row_ownership.agent(tx, self._organization, agent_id)
            _check_conversation(tx, hook)
            if hooks.count(tx, agent_id) >= HOOKS_MAX:
                raise Conflict(f"The agent has {HOOKS_MAX} webhooks, which is the maximum. Delete some first.")
            hooks.insert(tx, hook, credential.digest)

        await self._world.database.transact(write)
        return hook, str(credential)

    async def update(self, agent_id: AgentId, hook_id: str, change: Callable[[Webhook], Webhook]) -> Webhook:
        """Raises NotFound, InvalidInput."""
        now = self._world.clock.now()

        def write(tx: Tx) -> Webhook:
            after = replace(change(self._owned(tx, agent_id, hook_id, lock=True)), updated_at=now)
            _check_conversation(tx, after)
            hooks.replace(tx, after)
            return after

        return await self._world.database.transact(write)

    async def renew(self, agent_id: AgentId, hook_id: str) -> tuple[Webhook, str]:
        """A new token for a webhook; the old one stops working at once. Raises NotFound."""
        hook = await self.get(agent_id, hook_id)
        credential = replace(credentials.fresh(HookId, self._world.ids), id=hook.id)

        def write(tx: Tx) -> None:
            hooks.renew(tx, self._owned(tx, agent_id, hook_id, lock=True).id, credential.digest)

        try:
            await self._world.database.transact(write)
        finally:
            self._changed()
        return hook, str(credential)

    async def get(self, agent_id: AgentId | None, hook_id: str) -> Webhook:
        """A webhook of this agent, or of any. Raises NotFound."""
        return await self._world.database.read(lambda tx: self._owned(tx, agent_id, hook_id))

    async def page(self, agent_id: AgentId | None, wanted: Page) -> list[Webhook]:
        """Webhooks of an agent, or of all agents. Raises NotFound."""

        def read(tx: Tx) -> list[Webhook]:
            if agent_id is not None:
                row_ownership.agent(tx, self._organization, agent_id)
            return hooks.page(tx, self._organization, agent_id, wanted)

        return await self._world.database.read(read)

    async def delete(self, agent_id: AgentId, hook_id: str) -> None:
        """Raises NotFound."""

        def write(tx: Tx) -> None:
            hooks.delete(tx, self._owned(tx, agent_id, hook_id, lock=True).id)

        try:
            await self._world.database.transact(write)
        finally:
            self._changed()

    async def deliver(self, body: bytes, headers: Mapping[str, str]) -> Run:
        """Wakes the agent of the webhook whose token the caller showed.

        Raises NotFound, Forbidden for one that is switched off, Conflict for one whose conversation was deleted,
        InvalidInput, and what a background send raises.
        """
        hook = await self._shown()
        text = readable(body, headers.get("content-type", ""))
        delivery = next((headers[name] for name in DELIVERY_HEADERS if headers.get(name)), None)
        otid = None if delivery is None else f"{hook.id}-{hashlib.sha256(delivery.encode()).hexdigest()[:32]}"
        if otid is not None and (known := await self._known(hook, otid)) is not None:
            return known
        send = SendRequest(
            (NewMessage(Role.user, (Text(_message(hook, text)),), otid=otid),),
            max_steps=self._settings.max_steps,
            run_type="webhook",
            conversation=hook.conversation_id or "",
        )
        run = await self._background_runs.accept(hook.agent_id, send)
        now = self._world.clock.now()
        await self._world.database.transact(lambda tx: hooks.note_use(tx, hook.id, now))
        return run

    async def _shown(self) -> Webhook:
        def read(tx: Tx) -> tuple[Webhook, bool] | None:
            found = hooks.find(tx, self._caller.key_id or "")
            if found is None:
                return None
            thread = found[0].conversation_id
            return found[0], thread is None or conversations.is_live(tx, thread)

        found = await self._world.database.read(read)
        if found is None or found[0].organization_id != self._organization:
            raise NotFound("Webhook", "?", NO_HOOK)
        hook, can_be_heard = found
        if not hook.enabled:
            raise Forbidden("This webhook is switched off. Switch it on before delivering to it.")
        if not can_be_heard:
            raise Conflict(NO_CONVERSATION)
        return hook

    async def _known(self, hook: Webhook, otid: str) -> Run | None:
        def read(tx: Tx) -> Run | None:
            found = client_ids.newest(tx, hook.agent_id, hook.conversation_id or "", otid, 1)
            return next(iter(runs.get_many(tx, found)), None)

        return await self._world.database.read(read)

    def _owned(self, tx: Tx, agent_id: AgentId | None, hook_id: str, *, lock: bool = False) -> Webhook:
        if agent_id is not None:
            row_ownership.agent(tx, self._organization, agent_id)
        return hooks.get(tx, self._organization, agent_id, hook_id, lock=lock)


def _message(hook: Webhook, text: str) -> str:
    parts = [
        f"[Automatic message, not from a person: the webhook '{hook.name}' received this.]",
        hook.instructions,
        text,
    ]
    return "\n\n".join(part for part in parts if part)


def _check_conversation(tx: Tx, hook: Webhook) -> None:
    if hook.conversation_id is None:
        return
    if conversations.get(tx, hook.organization_id, hook.conversation_id).agent_id != hook.agent_id:
        raise InvalidInput("conversation_id", f"{hook.conversation_id} is a conversation of another agent")
