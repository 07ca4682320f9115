"""A simulated authorization server for MCP servers: logins with a code, short tokens, and refresh tokens that rotate,
or, in some runs, stay as they are.

A refresh token that rotates works once. One that comes again is refused, and was either lost on the way back, which
nobody can help, or used twice, which is a bug of the client.
"""

import asyncio
import json
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.mcp.http_host import PLACE

HOST = "auth.sim"
ISSUER = f"http://{HOST}"
LIFE_S = 100  # of an access token: it is renewed when less than a minute is left
WORK_S = (0.05, 3.5)
STAYS_EVERY = 5  # runs: in one of them refresh tokens stay


@dataclass(slots=True)
class Issued:
    """A refresh token: how often it was used."""

    uses: int = 0


@dataclass
class AuthorizationServer:
    machine: Machine
    issued: dict[str, Issued] = field(default_factory=dict[str, Issued])
    ends_s: dict[str, float] = field(default_factory=dict[str, float])  # of access tokens
    accesses: list[str] = field(default_factory=list[str])
    refused: int = 0
    logins: int = 0

    def __post_init__(self) -> None:
        self._rng = self.machine.loop.rng("authorization server")
        self._rotates = self.machine.loop.seed % STAYS_EVERY != STAYS_EVERY - 2
        self.machine.world.internet.host(HOST, self, PLACE)

    @property
    def secrets(self) -> list[str]:
        """Every token there ever was."""
        return [*self.issued, *self.accesses]

    def challenge(self, authorization: str | None) -> dict[str, str] | None:
        """The headers of a refusal, for a request without a token that is valid now."""
        token = (authorization or "").removeprefix("Bearer ")
        if asyncio.get_running_loop().time() < self.ends_s.get(token, -1.0):
            return None
        return {"www-authenticate": 'Bearer error="invalid_token"'}

    def agree(self, address: str) -> str:
        """A person agrees at this address; the query with which they are sent back."""
        asked = parse_qs(urlsplit(address).query)
        self.logins += 1
        return f"state={asked['state'][0]}&code=code-{self.logins}&iss={ISSUER}"

    async def __call__(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        path = asked.path.partition("?")[0]
        if path == "/register":
            told: dict[str, object] | None = {"client_id": "kelpie", "token_endpoint_auth_method": "none"}
        elif path == "/token":
            told = self._token({name: values[0] for name, values in parse_qs(asked.body.decode()).items()})
            await asyncio.sleep(self._rng.uniform(*WORK_S))  # who leaves in this time has used the token
        elif path.startswith("/.well-known/oauth-authorization-server"):
            told = {
                "issuer": ISSUER,
                "authorization_endpoint": f"{ISSUER}/authorize",
                "token_endpoint": f"{ISSUER}/token",
                "registration_endpoint": f"{ISSUER}/register",
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
        else:
            await answer.start(404)
            return
        await answer.start(200 if told is not None else 400, {"content-type": "application/json"})
        await answer.send(json.dumps({"error": "invalid_grant"} if told is None else told).encode())

    def _token(self, form: dict[str, str]) -> dict[str, object] | None:
        renews = form["grant_type"] == "refresh_token"
        if renews and self._rotates:
            known = self.issued[form["refresh_token"]]
            known.uses += 1
            if known.uses > 1:
                self.refused += 1
                return None
        number = len(self.accesses) + 1
        refresh, access = f"refresh-{number}-0123456789", f"access-{number}-0123456789"
        self.accesses.append(access)
        self.ends_s[access] = asyncio.get_running_loop().time() + LIFE_S
        told: dict[str, object] = {"access_token": access, "token_type": "Bearer", "expires_in": LIFE_S}
        if renews and not self._rotates:
            return told
        self.issued[refresh] = Issued()
        return {**told, "refresh_token": refresh}
