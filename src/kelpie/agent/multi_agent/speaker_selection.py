"""How groups are led: one function for each kind, which gives the members the word until there is a reason to end.

Every way is bounded in turns. A leader that fails ends the meeting, for nobody else can lead it; a member that fails
does not, unless all of them did.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kelpie.agent.multi_agent.group_chat import GroupChat
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.groups import ManagerType
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import Conflict

TURNS_MAX = 100  # of one meeting, whatever the group asks for
DYNAMIC_TURNS = 10  # of members, where the group names no number
AT_ONCE = 10
TERMINATION_TOKEN = "DONE!"

Way = Callable[[GroupChat], Awaitable[None]]


async def lead(meeting: GroupChat) -> None:
    """Runs a meeting to its end."""
    await WAYS[meeting.group.manager.type](meeting)


async def _round_robin(meeting: GroupChat) -> None:
    """One after the other in the order of the group, once round or `max_turns` times in all."""
    members, asked = meeting.members, meeting.group.manager.max_turns
    spoke = False
    for turn in range(min(len(members) if asked is None else asked, TURNS_MAX)):
        member = members[turn % len(members)]
        if not meeting.news_for(member):
            break  # a group of one has nobody else to hear
        spoke = await meeting.give_word(member) is not None or spoke
        if meeting.stopped:
            break
    _end(meeting, answered=spoke or asked == 0)


async def _supervisor(meeting: GroupChat) -> None:
    """The leader says what the members are to do, all of them answer at once, the leader sums up."""
    leader = _leader(meeting)
    if await meeting.give_word(leader, _brief(meeting, BRIEF_ALL)) is None:
        meeting.close(StopReason.error, meeting.failure)
        return
    places = asyncio.Semaphore(AT_ONCE)

    async def answer(member: Agent) -> None:
        async with places:
            if not meeting.stopped:
                await meeting.give_word(member)

    if not meeting.stopped:
        await asyncio.gather(*(answer(member) for member in meeting.members))
    if not meeting.stopped and await meeting.give_word(leader, SUM_UP) is None:
        meeting.close(StopReason.error, meeting.failure)
        return
    meeting.close(StopReason.end_turn)


async def _dynamic(meeting: GroupChat) -> None:
    """The leader names who speaks next, until it says that all is done or the turns are used up."""
    leader, manager = _leader(meeting), meeting.group.manager
    token = manager.termination_token or TERMINATION_TOKEN
    turns = DYNAMIC_TURNS if manager.max_turns is None else manager.max_turns
    note, misses = _brief(meeting, f"{NAME_NEXT} {token}"), 0
    for _ in range(min(turns, TURNS_MAX)):
        chosen = await meeting.give_word(leader, note, aside=True)
        if chosen is None:
            meeting.close(StopReason.error, meeting.failure)
            return
        if meeting.stopped or token.casefold() in chosen.casefold():
            meeting.close(StopReason.end_turn)
            return
        member = named(chosen, meeting.members)
        if member is not None:
            await meeting.give_word(member)
            note = f"[{NAME_NEXT} {token}]"
        else:
            misses += 1
            if misses > 1:
                break
            note = f"[That is not the name of a group member. {NAME_NEXT} {token}]"
        if meeting.stopped:
            break
    meeting.close(StopReason.max_steps if not meeting.stopped else StopReason.end_turn)


async def _through_leader(meeting: GroupChat) -> None:
    """A group whose members work in the background is spoken to through the agent they work for."""
    if await meeting.give_word(_leader(meeting)) is None:
        meeting.close(StopReason.error, meeting.failure)
    else:
        meeting.close(StopReason.end_turn)


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


def _brief(meeting: GroupChat, task: str) -> str:
    members = "\n".join(f"- {m.name} ({m.id}){': ' + m.description if m.description else ''}" for m in meeting.members)
    about = f" ({meeting.group.description})" if meeting.group.description else ""
    return f"[You lead a group{about}. Its members:\n{members}\n{task}]"


def _leader(meeting: GroupChat) -> Agent:
    if meeting.leader is None:
        raise Conflict(f"{meeting.group.id} has no manager agent. Set manager_agent_id.")
    return meeting.leader


def _end(meeting: GroupChat, *, answered: bool) -> None:
    if answered or meeting.stopped:
        meeting.close(StopReason.end_turn)
    else:
        meeting.close(StopReason.error, meeting.failure)
