"""How an agent is doing, as it is shown: from what is stored and from what is live."""

from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.agents.agent import ActivationStatus


def shown_status(stopped: bool, live: ActivationStatus) -> ActivationStatus:
    """What is stored tells whether an agent is stopped; what is live, how it is doing otherwise."""
    if stopped and live.state is ActivationState.unloaded:
        return ActivationStatus(ActivationState.stopped)
    return ActivationStatus(ActivationState.unloaded) if live.state is ActivationState.stopped and not stopped else live
