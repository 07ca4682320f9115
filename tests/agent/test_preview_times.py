"""What was shown in pieces and what is stored of it say the same: the message, its words, and the time it was made."""

import asyncio

import pytest

from kelpie.agent.events.turn_events import AnswerDelta
from kelpie.core.agents.agent import NewAgent
from kelpie.core.conversations.messages import MessageQuery
from kelpie.llm.provider.interface import TextDelta
from tests.agent.conftest import Rig, ScriptModel, ended, rows, says


class Speaker(ScriptModel):
    """Says its reply in two pieces, with a moment between them."""

    async def stream(self, request):
        self.requests.append(request)
        if request.deltas:
            yield TextDelta("well ")
            await asyncio.sleep(0)
            yield TextDelta("then")
        yield says("well then")


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path / "kelpie.db")
    made.model = Speaker()
    await made.start()
    yield made
    await made.stop()


async def test_a_message_keeps_the_time_at_which_its_first_piece_was_shown(rig):
    agent = (await rig.kelpie.api().agents.create(NewAgent())).agent
    events = await rig.say(agent.id, "hello", deltas=True)
    pieces, (row,) = [event for event in events if isinstance(event, AnswerDelta)], rows(events)
    assert "".join(piece.text for piece in pieces) == row.text == "well then"
    assert {(piece.message_id, piece.step_id, piece.at) for piece in pieces} == {(row.id, row.step_id, row.created_at)}
    stored = (await rig.kelpie.api().histories.messages(agent.id, MessageQuery()))[-1]
    assert (stored.id, stored.created_at) == (row.id, row.created_at)
    run = await rig.kelpie.api().runs.get(ended(events).run_id)
    assert run.ttft_ns is not None and run.ttft_ns <= run.total_duration_ns
    assert run.created_at <= row.created_at <= run.completed_at


async def test_who_wants_no_pieces_gets_none(rig):
    agent = (await rig.kelpie.api().agents.create(NewAgent())).agent
    events = await rig.say(agent.id, "hello")
    assert not [event for event in events if isinstance(event, AnswerDelta)] and rows(events)[-1].text == "well then"
