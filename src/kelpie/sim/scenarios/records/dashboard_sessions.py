"""People who sign in to the dashboard and out of it while writes fail, the power goes and the clock jumps.

A session that was signed out, or whose key was revoked, is never accepted again, also after a restart. One whose
sign-in was acknowledged works until then, also after a crash. None outlives its lifetime by the clock of the server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kelpie.accounts.sessions import LIFE_S
from kelpie.core.time import MICROS_PER_SECOND, as_datetime
from kelpie.sim.faults import SIZES, Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.ports.clock import START, SimClock
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS, RunningKelpie
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

PASSWORD = "the-password-of-this-server"
OWNER = {"Authorization": f"Bearer {PASSWORD}"}
PAGE = {"Sec-Fetch-Site": "same-origin"}
KEY_ENDS = as_datetime(START + 365 * 24 * 3600 * MICROS_PER_SECOND).isoformat()
ROUNDS = 4
USES = 4
TRIES_MAX = 200
_NOT_NOW = (None, 429, 503)  # no answer, or one that says nothing about the session
_CLOCKS = (Fault.clock_jump, Fault.clock_skew)


@dataclass(slots=True)
class Session:
    """A session whose sign-in was acknowledged. It may end from `ending_s` on, and has ended at `ended_s`."""

    cookie: str
    key_id: str | None  # None: it was opened with the password
    clock_faults: int  # that had happened when it was opened
    opened_s: float
    ending_s: float = float("inf")
    ended_s: float = float("inf")

    @property
    def headers(self) -> Mapping[str, str]:
        return PAGE | {"Cookie": self.cookie}


class DashboardSessions(ServerScenario):
    """Three people with browsers; an operator makes keys for them and revokes some."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.sessions: list[Session] = []

    def client(self, name: str) -> ScenarioClient:
        return ScenarioClient(self.machine, name, self.heard, self.machine.client(name, OWNER))

    async def act(self) -> None:
        await self.make_agents(1)
        await together(self._person(self.client(f"operator-{n}"), f"browser-{n}") for n in range(3))

    async def _person(self, operator: ScenarioClient, browser: str) -> None:
        for number in range(ROUNDS):
            made: dict[str, Any] | None = None
            if operator.tosses(0.7):
                body: dict[str, Any] = {"name": f"{browser} {number}", "scopes": ["read"]}
                if operator.tosses(0.4):
                    body["expires_at"] = KEY_ENDS  # long after any session
                made = await operator.insist("POST", "/v1/kelpie/keys", body)
            session = await self._sign_in(browser, made)
            await self._use(operator, browser, session)
            if operator.tosses(0.5):
                await self._end(operator, [session], "DELETE", "/session", session.headers)
            elif made is not None and operator.tosses(0.7):
                shared = [each for each in self.sessions if each.key_id == made["id"]]
                await self._end(operator, shared, "DELETE", f"/v1/kelpie/keys/{made['id']}", OWNER)
            if operator.tosses(0.3):
                self.machine.crash()
            await self._use(operator, browser, session)

    async def _sign_in(self, browser: str, key: dict[str, Any] | None) -> Session:
        """Repeats the sign-in until it is acknowledged."""
        credential = {"credential": PASSWORD if key is None else key["key"]}
        for _ in range(TRIES_MAX):
            faults = self._clock_faults()
            told = await self._ask(browser, "POST", "/session", PAGE, credential)
            if told is not None and told.status == 200:
                cookie = told.headers["set-cookie"].partition(";")[0]
                session = Session(cookie, None if key is None else key["id"], faults, self.machine.loop.time())
                self.sessions.append(session)
                return session
            is_over = (
                told is not None and told.status == 401 and faults != self._clock_faults()
            )  # at once, by its clock
            if told is not None and told.status not in _NOT_NOW and not is_over:
                raise Broken("a sign-in with a right key is accepted", f"{told.status} {told.body!r}")
            await self.client(browser).pause()
        raise Broken("the server recovers", f"{browser} could not sign in in {TRIES_MAX} tries")

    async def _end(
        self, operator: ScenarioClient, ended: list[Session], method: str, path: str, headers: Mapping[str, str]
    ) -> None:
        """Repeats a sign-out, or a revocation, until it is acknowledged."""
        for session in ended:
            session.ending_s = min(session.ending_s, self.machine.loop.time())
        for _ in range(TRIES_MAX):
            told = await self._ask(operator.name, method, path, headers)
            if told is not None and told.status in (200, 404):
                for session in ended:
                    session.ended_s = min(session.ended_s, self.machine.loop.time())
                return
            await operator.pause()
        raise Broken("the server recovers", f"{method} {path} failed {TRIES_MAX} times")

    async def _use(self, person: ScenarioClient, browser: str, session: Session) -> None:
        for _ in range(USES):
            await person.pause()
            await self._show(browser, session)

    async def _show(self, browser: str, session: Session) -> int | None:
        """Uses the session once. Raises Broken when it works too long or not long enough."""
        loop = self.machine.loop
        called_s = loop.time()
        told = await self._ask(browser, "GET", "/v1/agents/count", session.headers)
        status = None if told is None else told.status
        if status == 200 and called_s >= session.ended_s:
            raise Broken("a session that has ended lets nobody in", f"{session}")
        if status not in (200, *_NOT_NOW) and loop.time() < session.ending_s and self._is_young(session):
            raise Broken("a session works until it ends", f"{session} was answered {status}")
        return status

    async def _ask(
        self, name: str, method: str, path: str, headers: Mapping[str, str], body: Any = None
    ) -> Response | None:
        await self.machine.up()
        try:
            return await self.machine.client(name).request(method, path, body, headers=headers)
        except ConnectionLost:
            return None

    def _is_young(self, session: Session) -> bool:
        """True if no clock can say that its lifetime is over."""
        age_s = self.machine.loop.time() - session.opened_s
        return session.clock_faults == self._clock_faults() and age_s < LIFE_S - SIZES[Fault.clock_skew][1]

    def _clock_faults(self) -> int:
        """A number that changes whenever the clock of the server was set; a start sets one that is wrong."""
        fired = sum(self.machine.faults.fired(kind) for kind in _CLOCKS)
        return fired and fired + self.machine.boots

    async def settle(self) -> None:
        await self._end_well("checker")
        await self.machine.restart()
        await self._end_well("later-checker")
        running = self.machine.running
        assert isinstance(running, RunningKelpie) and isinstance(running.kelpie.world.clock, SimClock)
        running.kelpie.world.clock.jump(LIFE_S + 2 * SIZES[Fault.clock_jump][1])
        for number, session in enumerate(self.sessions):
            told = await self._ask(f"last-checker-{number}", "GET", "/v1/agents/count", session.headers)
            if told is None or told.status != 401:
                raise Broken("no session outlives its lifetime", f"{session} was answered {told and told.status}")
        await super().settle()

    async def _end_well(self, name: str) -> None:
        for number, session in enumerate(self.sessions):
            status = await self._show(f"{name}-{number}", session)
            if session.ended_s < float("inf") and status != 401:
                raise Broken("a session that has ended lets nobody in", f"{session} was answered {status}")
            if session.ending_s == float("inf") and status != 200 and self._is_young(session):
                raise Broken("a session works until it ends", f"{session} was answered {status}")


DASHBOARD_SESSIONS = scenario(
    "dashboard-sessions",
    DashboardSessions,
    faults=(Aim(Fault.crash_after_write, "database.acknowledge", rate=0.02, times_max=2),),
    plots=(
        (
            Aim(Fault.storage_write_fail, "database.begin", rate=0.05),
            Aim(Fault.storage_write_fail, "database.commit", rate=0.05),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.1),
            Aim(Fault.storage_read_fail, "database.read", rate=0.05),
        ),
        (Aim(Fault.crash_before_write, "database.begin", rate=0.03, times_max=3),),
        (
            Aim(Fault.clock_jump, "clock.now", rate=0.01, times_max=6),
            Aim(Fault.clock_skew, "clock.boot", rate=0.7),
        ),
        (
            Aim(Fault.storage_latency, "database.write", rate=0.1),
            Aim(Fault.storage_latency, "database.read", rate=0.2),
            Aim(Fault.network_packet_loss, "network.client", rate=0.05),
        ),
    ),
    swarm=(Fault.storage_busy, Fault.network_delay, Fault.cpu_starvation),
    settings=replace(SETTINGS, password=PASSWORD),
)
