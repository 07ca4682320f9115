"""Speaker selection in group chats: one function for each kind of group, which runs turns of its members until the end.

The number of turns is always bounded. A manager that fails ends the chat, for no other can lead it; a member that fails
does not, unless all of them did.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kelpie.agent.multi_agent.group_chat import GroupChat
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.groups import ManagerType
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import Conflict

TURNS_MAX = 100  # of one chat, whatever the group asks for
DYNAMIC_TURNS = 10  # of members, where the group names no number
AT_ONCE = 10
TERMINATION_TOKEN = "DONE!"

Way = Callable[[GroupChat], Awaitable[None]]


async def lead(chat: GroupChat) -> None:
    """Runs a chat to its end."""
    await WAYS[chat.group.manager.type](chat)


async def _round_robin(chat: GroupChat) -> None:
    """One after the other in the order of the group, once round or `max_turns` times in all."""
    members, asked = chat.members, chat.group.manager.max_turns
    spoke = False
    for turn in range(min(len(members) if asked is None else asked, TURNS_MAX)):
        member = members[turn % len(members)]
        if not chat.new_messages_for(member):
            break  # a group of one has no other member
        spoke = await chat.run_turn(member) is not None or spoke
        if chat.stopped:
            break
    _end(chat, answered=spoke or asked == 0)


async def _supervisor(chat: GroupChat) -> None:
    """The manager gives the members their tasks, all of them answer at once, the manager sums up."""
    leader = _leader(chat)
    if await chat.run_turn(leader, _brief(chat, BRIEF_ALL)) is None:
        chat.close(StopReason.error, chat.failure)
        return
    places = asyncio.Semaphore(AT_ONCE)

    async def answer(member: Agent) -> None:
        async with places:
            if not chat.stopped:
                await chat.run_turn(member)

    if not chat.stopped:
        await asyncio.gather(*(answer(member) for member in chat.members))
    if not chat.stopped and await chat.run_turn(leader, SUM_UP) is None:
        chat.close(StopReason.error, chat.failure)
        return
    chat.close(StopReason.end_turn)


async def _dynamic(chat: GroupChat) -> None:
    """The manager names the next speaker, until it reports the end or the turns are used up."""
    leader, manager = _leader(chat), chat.group.manager
    token = manager.termination_token or TERMINATION_TOKEN
    turns = DYNAMIC_TURNS if manager.max_turns is None else manager.max_turns
    note, misses = _brief(chat, f"{NAME_NEXT} {token}"), 0
    for _ in range(min(turns, TURNS_MAX)):
        chosen = await chat.run_turn(leader, note, aside=True)
        if chosen is None:
            chat.close(StopReason.error, chat.failure)
            return
        if chat.stopped or token.casefold() in chosen.casefold():
            chat.close(StopReason.end_turn)
            return
        member = named(chosen, chat.members)
        if member is not None:
            await chat.run_turn(member)
            note = f"[{NAME_NEXT} {token}]"
        else:
            misses += 1
            if misses > 1:
                break
            note = f"[That is not the name of a group member. {NAME_NEXT} {token}]"
        if chat.stopped:
            break
    chat.close(StopReason.max_steps if not chat.stopped else StopReason.end_turn)


async def _through_leader(chat: GroupChat) -> None:
    """A group whose members work in the background is spoken to through the agent they work for."""
    if await chat.run_turn(_leader(chat)) is None:
        chat.close(StopReason.error, chat.failure)
    else:
        chat.close(StopReason.end_turn)


WAYS: dict[ManagerType, Way] = {
    ManagerType.round_robin: _round_robin,
    ManagerType.supervisor: _supervisor,
    ManagerType.dynamic: _dynamic,
    ManagerType.sleeptime: _through_leader,
    ManagerType.voice_sleeptime: _through_leader,
}

BRIEF_ALL = "Your next message is sent to every member. You then receive their answers and reply to the user."
SUM_UP = "[The members have answered. Reply to the user now.]"
NAME_NEXT = "Reply with only the name of the member who should speak next or, when the task is done, with"


def named(text: str, members: tuple[Agent, ...]) -> Agent | None:
    """The member whose id or name stands in the text: of several the one that is named first, the longer name first."""
    said = text.casefold()
    found = [(said.find(key.casefold()), -len(key), m) for m in members for key in (m.id, m.name) if key]
    places = [(place, length, i) for i, (place, length, _) in enumerate(found) if place >= 0]
    return found[min(places)[2]][2] if places else None


def _brief(chat: GroupChat, task: str) -> str:
    members = "\n".join(f"- {m.name} ({m.id}){': ' + m.description if m.description else ''}" for m in chat.members)
    about = f" ({chat.group.description})" if chat.group.description else ""
    return f"[You lead a group{about}. Its members:\n{members}\n{task}]"


def _leader(chat: GroupChat) -> Agent:
    if chat.leader is None:
        raise Conflict(f"{chat.group.id} has no manager agent. Set manager_agent_id.")
    return chat.leader


def _end(chat: GroupChat, *, answered: bool) -> None:
    if answered or chat.stopped:
        chat.close(StopReason.end_turn)
    else:
        chat.close(StopReason.error, chat.failure)
