"""A key that is released while it cannot be loaded, or is being loaded, begins anew: nothing of before counts."""

import pytest

from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import ActivationFailed, StorageError
from tests.actors.harness import Harness, ignore, number, seeded


@seeded(attempts_max=5)
async def test_loads_that_failed_before_the_release_are_not_counted(harness: Harness) -> None:
    harness.errors["a"] = [OSError("no disk") for _ in range(8)]
    reply = harness.dispatcher.submit("a", "x", ignore)
    await harness.until(lambda: len(harness.loads) == 3 and not harness.loading)
    await harness.dispatcher.release("a")
    with pytest.raises(ActivationFailed):
        await reply
    assert len(harness.loads) == 8


@seeded()
async def test_an_error_that_came_during_the_load_goes_with_it(harness: Harness) -> None:
    async def forever(key: str) -> None:
        await harness.until(lambda: len(harness.loads) > 1)

    harness.before_load = forever
    reply = harness.dispatcher.submit("a", "x", number)
    await harness.until(lambda: bool(harness.loading))
    harness.dispatcher.drop("a", StorageError("it was changed"))
    await harness.dispatcher.release("a")
    assert await reply == 2
    assert ActivationState.failed not in harness.states()
    assert len(harness.loads) == 2
