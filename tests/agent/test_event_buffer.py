"""The events of a turn in memory: what its end says of a turn that broke off."""

import asyncio

from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.turn_events import TurnEnded
from kelpie.core.errors import StorageError
from kelpie.core.ids import RunId

RUN = RunId("run-00000000-0000-4000-8000-000000000001")


def test_the_end_of_a_turn_that_broke_off_says_whether_its_input_is_stored() -> None:
    """A client that is told otherwise sends answers a second time."""

    async def ends() -> list[bool]:
        found: list[bool] = []
        for stored in (False, True):
            stream = TurnStream(RUN)
            if stored:
                stream.sealed(ended=False)
            stream.break_off(StorageError("The database failed."))
            found += [event.input_stored for event in stream._events if isinstance(event, TurnEnded)]
        return found

    assert asyncio.run(ends()) == [False, True]
