"""Status of an agent as clients see it: from the stored row and the live activation."""

from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.agents.agent import ActivationStatus


def shown_status(stopped: bool, live: ActivationStatus) -> ActivationStatus:
    """Combines both: the row says if the agent is stopped, the activation everything else."""
    if stopped and live.state is ActivationState.unloaded:
        return ActivationStatus(ActivationState.stopped)
    return ActivationStatus(ActivationState.unloaded) if live.state is ActivationState.stopped and not stopped else live
