"""The scenarios, by name."""

from kelpie.sim.scenario import Scenario
from kelpie.sim.scenarios.allowances import ALLOWANCES
from kelpie.sim.scenarios.archival import EMBEDDINGS, PASSAGES
from kelpie.sim.scenarios.background import BACKGROUND
from kelpie.sim.scenarios.block_history import BLOCK_HISTORY
from kelpie.sim.scenarios.budgets import BUDGETS
from kelpie.sim.scenarios.callbacks import CALLBACKS
from kelpie.sim.scenarios.cancels import CANCELLING
from kelpie.sim.scenarios.clients import CLIENTS
from kelpie.sim.scenarios.clocks import CLOCKS
from kelpie.sim.scenarios.correspondence import CORRESPONDENCE
from kelpie.sim.scenarios.corruption import CORRUPTION
from kelpie.sim.scenarios.crashes import ANYWHERE, EVERY_POINT
from kelpie.sim.scenarios.credentials import CREDENTIALS
from kelpie.sim.scenarios.crowds import MANY_AGENTS, ONE_AGENT
from kelpie.sim.scenarios.doubts import CUT_OFF, DOUBTS
from kelpie.sim.scenarios.everything import EVERYTHING
from kelpie.sim.scenarios.expiring import EXPIRING
from kelpie.sim.scenarios.groups import DISK_FULL
from kelpie.sim.scenarios.households import HOUSEHOLDS
from kelpie.sim.scenarios.lanes import LANES
from kelpie.sim.scenarios.learning import LEARNING
from kelpie.sim.scenarios.lifecycle import LIFECYCLE
from kelpie.sim.scenarios.models import LLM_FAULTS, NETWORK
from kelpie.sim.scenarios.permits import PERMITS
from kelpie.sim.scenarios.recollection import MEMORY_CRASHES, VECTOR_SEARCH
from kelpie.sim.scenarios.records import RECORDS
from kelpie.sim.scenarios.removals import REMOVALS
from kelpie.sim.scenarios.renewals import RENEWALS
from kelpie.sim.scenarios.rests import RESTS
from kelpie.sim.scenarios.rivals import RIVALS
from kelpie.sim.scenarios.rulings import RULINGS
from kelpie.sim.scenarios.sandboxed import SANDBOXED
from kelpie.sim.scenarios.shared import SHARED
from kelpie.sim.scenarios.storage import CONVERSATIONS
from kelpie.sim.scenarios.threads import THREADS
from kelpie.sim.scenarios.toolboxes import TOOLBOXES
from kelpie.sim.scenarios.waiting import WAITING
from kelpie.sim.scenarios.windows import WINDOWS
from kelpie.sim.scenarios.workings import WORKINGS

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        CONVERSATIONS,
        EVERY_POINT,
        ANYWHERE,
        DISK_FULL,
        LLM_FAULTS,
        NETWORK,
        ONE_AGENT,
        MANY_AGENTS,
        CLIENTS,
        CLOCKS,
        SHARED,
        BLOCK_HISTORY,
        RECORDS,
        PASSAGES,
        EMBEDDINGS,
        VECTOR_SEARCH,
        MEMORY_CRASHES,
        CORRUPTION,
        HOUSEHOLDS,
        THREADS,
        LANES,
        TOOLBOXES,
        SANDBOXED,
        CALLBACKS,
        RENEWALS,
        RULINGS,
        CORRESPONDENCE,
        CREDENTIALS,
        DOUBTS,
        CUT_OFF,
        CANCELLING,
        WAITING,
        EXPIRING,
        RESTS,
        BUDGETS,
        PERMITS,
        ALLOWANCES,
        LEARNING,
        LIFECYCLE,
        REMOVALS,
        RIVALS,
        BACKGROUND,
        WINDOWS,
        WORKINGS,
        EVERYTHING,
    )
}
