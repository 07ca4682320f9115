"""Running group chats of this process: one at a time in a group, and they continue when the client disconnects.
They hold no agent and write nothing themselves, so ending them with the process loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.groups import Group
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import Conflict, InvariantBroken, KelpieError, Overloaded
from kelpie.core.ids import GroupId
from kelpie.observe import logs
from kelpie.world.lazy_imports import lazily

with lazily:
    from kelpie.agent.multi_agent import group_chat as _group_chat
    from kelpie.agent.multi_agent import speaker_selection as _speaker_selection

if TYPE_CHECKING:
    from kelpie.agent.inbox.send import MessageSender

MEETINGS_MAX = 200
RETRY_AFTER_S = 2.0
_log = logs.get("agent")


class RunningChats:
    """Group chats that run now, by group."""

    def __init__(self) -> None:
        self._running: dict[GroupId, asyncio.Task[None]] = {}

    def begin(
        self, sending: MessageSender, group: Group, members: Sequence[Agent], leader: Agent | None, send: SendRequest
    ) -> _group_chat.Listener:
        """Raises Conflict while the group has a chat already, and Overloaded when too many chats run."""
        if group.id in self._running:
            raise Conflict(f"{group.id} is still processing another message. Send it again when that has finished.")
        if len(self._running) >= MEETINGS_MAX:
            raise Overloaded(
                "group_chats_full",
                f"{MEETINGS_MAX} groups are already processing messages. Send it again later.",
                RETRY_AFTER_S,
            )
        listener = _group_chat.Listener(group.id)
        chat = _group_chat.GroupChat(sending, group, members, leader, send, listener)
        task = asyncio.create_task(_run(chat))
        self._running[group.id] = task
        task.add_done_callback(lambda _: self._running.pop(group.id, None))
        return listener

    async def close(self) -> None:
        """Ends what is going on; the members' turns have an end of their own."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


async def _run(chat: _group_chat.GroupChat) -> None:
    try:
        await _speaker_selection.lead(chat)
    except asyncio.CancelledError:
        chat.close(
            StopReason.error,
            Overloaded(
                "agents_stopping", "The server is shutting down. Send it again when the server is back.", RETRY_AFTER_S
            ),
        )
        raise
    except KelpieError as error:
        chat.close(StopReason.error, error)
    except Exception as error:  # noqa: BLE001 - logged, and the client must get an end even after a bug
        _log.exception("group_chat_crashed", "Group chat ended by an unexpected error", group_id=chat.group.id)
        chat.close(StopReason.error, InvariantBroken(f"{type(error).__name__}: {error}"))
