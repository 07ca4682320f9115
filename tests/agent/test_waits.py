"""Who waits for whom: no ring, and never so much code that nobody could get a place to answer it."""

from contextlib import ExitStack

import pytest

from kelpie.agent.inbox.wait_graph import WaitGraph
from kelpie.core.access.callers import DEFAULT_ORGANIZATION, DEFAULT_USER
from kelpie.core.access.consumers import Consumer
from kelpie.core.access.passports import Passport
from kelpie.core.conversations.agent_chain import AgentChain
from kelpie.core.errors import Overloaded, ToolError
from kelpie.core.ids import AgentId
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.sandbox.slots import JobSlots

NOW, UNTIL = 1, 9
ONE, TWO, THREE = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2, 3))


def code(of: AgentId, level: int = 0) -> Passport:
    return Passport(of, DEFAULT_ORGANIZATION, DEFAULT_USER, UNTIL, AgentChain((of,), level + 1))


def test_a_ring_is_refused_however_long():
    waits = WaitGraph(2)
    with waits.waiting((ONE, ""), (TWO, "")), waits.waiting((TWO, ""), (THREE, "")):
        with pytest.raises(ToolError, match="waiting for an answer from you"), waits.waiting((THREE, ""), (ONE, "")):
            pass
        with waits.waiting((THREE, "another conversation"), (ONE, "")):
            pass
    with waits.waiting((THREE, ""), (ONE, "")):
        pass


def test_who_waits_twice_for_the_same_one_waits_until_both_are_over():
    waits, inner = WaitGraph(2), ExitStack()
    outer = waits.waiting((ONE, ""), (TWO, ""))
    outer.__enter__()
    inner.enter_context(waits.waiting((ONE, ""), (TWO, "")))
    outer.__exit__(None, None, None)  # the first to begin is the first to end
    with pytest.raises(ToolError), waits.waiting((TWO, ""), (ONE, "")):
        pass
    inner.close()
    with waits.waiting((TWO, ""), (ONE, "")), waits.waiting((TWO, ""), (THREE, "")):
        pass
    assert waits._for == {}


def test_one_place_is_kept_from_code_that_waits():
    waits = WaitGraph(3)
    with waits.of_code(code(ONE), NOW), waits.of_code(code(ONE), NOW), waits.of_code(code(TWO), NOW):
        with pytest.raises(Overloaded, match="Try again later"), waits.of_code(code(THREE), NOW):
            pass
        with waits.of_code(code(TWO), NOW):  # who waits already may wait for one more
            pass
        of_code = waits.of_code(code(THREE, level=1), NOW)  # what is called by code has places of its own
        with of_code, pytest.raises(Overloaded), waits.of_code(code(TWO, level=1), NOW):
            pass
    with waits.of_code(code(THREE), NOW):
        pass


def test_where_there_is_one_place_it_may_be_held():
    waits = WaitGraph(1)
    with waits.of_code(code(ONE), NOW), pytest.raises(Overloaded), waits.of_code(code(TWO), NOW):
        pass


def test_code_whose_time_is_over_holds_no_place():
    waits = WaitGraph(2)
    with waits.of_code(code(ONE), NOW), waits.of_code(code(TWO), UNTIL):
        pass


async def test_an_organization_with_its_share_keeps_a_place_of_its_own_from_code_that_waits():
    """Else its agents would wait for code that gets no place before the code that waits for them has timed out."""
    slots = JobSlots(4, 9, share=OrganizationShare(0.75, organizations=2))
    waits, others = WaitGraph(4, slots), Consumer("another organization")
    for of in (ONE, TWO):
        await slots.take(0, Consumer(DEFAULT_ORGANIZATION, of), 1)
    await slots.take(0, others, 1)
    with waits.of_code(code(ONE), NOW):
        with pytest.raises(Overloaded, match="Try again later"), waits.of_code(code(TWO), NOW):
            pass
        slots.give_back(0, others, 1)
        with waits.of_code(code(TWO), NOW):
            pass
