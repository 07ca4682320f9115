"""How an agent is doing, as it is shown: from what is stored and from what is live."""

from kelpie.core.agents.activation_state import State
from kelpie.core.agents.agent import ActivationStatus


def shown_status(stopped: bool, live: ActivationStatus) -> ActivationStatus:
    """What is stored tells whether an agent is stopped; what is live, how it is doing otherwise."""
    if stopped and live.state is State.unloaded:
        return ActivationStatus(State.stopped)
    return ActivationStatus(State.unloaded) if live.state is State.stopped and not stopped else live
