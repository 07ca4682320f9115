"""API access for the code of a tool: a passport that is valid while the tool runs, and the environment variables in
which `letta-client` looks for it. The address leads from the cell to Kelpie and nowhere else.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from kelpie.accounts.passports import Passports
from kelpie.core.access.passports import Passport
from kelpie.core.ids import DEFAULT_USER, UserId
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.core.tools.confinement import Confinement
from kelpie.core.tools.tools import Tool
from kelpie.tools.calls.interface import CallContext
from kelpie.world.clock import Clock
from kelpie.world.egress.broker import API_PORT

GRACE_S = 180.0  # beyond the time-out of the tool, which may have to wait for a cell first
BASE_URL = f"http://127.0.0.1:{API_PORT}"


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """The passport and the variables that a job needs for its code to call back."""

    passport: str
    env: Mapping[str, str]


class ApiCallback:
    """Opens API access for one call at a time."""

    def __init__(self, passports: Passports, clock: Clock) -> None:
        self._passports = passports
        self._clock = clock

    @contextmanager
    def opened(self, tool: Tool, call: CallContext, held: Confinement) -> Generator[ApiAccess]:
        """API access for code that is held so, until the block ends. Raises ToolError when too many tools run."""
        agent = call.agent
        passport = Passport(
            agent_id=agent.id,
            organization_id=agent.organization_id,
            user_id=UserId(agent.created_by_id) if agent.created_by_id else DEFAULT_USER,
            expires_at=self._clock.now() + int((held.wall_s + GRACE_S) * MICROS_PER_SECOND),
            chain=call.chain.asked_by(agent.id),
            run_id=call.run_id,
            step_id=call.step_id,
            tool=tool.name,
            conversation_id=call.conversation_id,
            egress=held.egress,
        )
        with self._passports.issued(passport) as text:
            env = {
                "LETTA_AGENT_ID": agent.id,
                "LETTA_PROJECT_ID": agent.project_id or "",
                "LETTA_BASE_URL": BASE_URL,
                "LETTA_API_KEY": text,
            }
            yield ApiAccess(text, env)
