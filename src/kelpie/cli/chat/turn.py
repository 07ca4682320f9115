"""One turn over HTTP: sent once, followed to its end, and cancelled on request.

The turn runs in the background of the server, so a connection that drops loses nothing: the stream goes on after the
last frame that arrived. Sending is safe to repeat, because every message has an id of its own.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

from kelpie.core.errors import KelpieError
from kelpie.world.http.cli_client import Client, ConnectionLost, ErrorResponse, Unreachable
from kelpie.world.processes.server_process import wait_until

SILENCE_S = 120.0  # the server pings a quiet stream far more often
CANCEL_S = 45.0  # a tool gets 30 seconds to stop
RECONNECTS_MAX = 5  # in a row, without a new frame
RECONNECT_S = 30.0  # for the server to answer again
FORBIDDEN, CONFLICT = 403, 409
RECONNECTING = "kelpie_reconnecting"  # the name of an event that the server does not send


class Turn:
    """Messages or answers for an agent, and the events that follow."""

    def __init__(self, client: Client, path: str, body: Mapping[str, Any]) -> None:
        self._client = client
        self._path = path
        self._body = dict(body)
        self._last = 0  # number of the last frame
        self._begun = False
        self._resumes = True
        self.run_id: str | None = None

    def events(self) -> Iterator[tuple[str, Any]]:
        """The events until the turn ends. Raises Unreachable or ErrorResponse."""
        failures = 0
        while True:
            try:
                for name, event in self._frames():
                    if self._is_new(event):
                        failures = 0
                        yield name, event
                return
            except Unreachable as error:
                failures += 1
                never_sent = not self._begun and not isinstance(error, ConnectionLost)
                if never_sent or failures > RECONNECTS_MAX or (self._begun and self.run_id is None):
                    raise
            yield RECONNECTING, {}
            self._await_server()

    def cancel(self, agent_id: str) -> bool:
        """Cancels the run and waits until it has ended; False if it goes on. Raises Unreachable or ErrorResponse."""
        if self.run_id is None:
            self._find_run()
        if self.run_id is None:
            return False
        path = f"/v1/agents/{quote(agent_id, safe='')}/messages/cancel"
        try:
            told = self._client.post(path, {"run_ids": [self.run_id]}, CANCEL_S)
        except ErrorResponse as refusal:
            if refusal.status == CONFLICT:  # nothing runs any more
                return True
            raise
        return all(word == "cancelled" for word in told.values())

    def _find_run(self) -> None:
        """Learns which run this is before its first frame has arrived: the same request again gives the same run."""
        with closing(self._client.events(self._path, self._body, CANCEL_S)) as events:
            for _, event in events:
                self._is_new(event)
                if self.run_id is not None:
                    return

    def _frames(self) -> Iterator[tuple[str, Any]]:
        if self.run_id is None or not self._resumes:
            yield from self._client.events(self._path, self._body, SILENCE_S)
            return
        try:
            path = f"/v1/runs/{quote(self.run_id, safe='')}/stream"
            yield from self._client.events(path, {"starting_after": self._last}, SILENCE_S)
        except ErrorResponse as refusal:
            if refusal.status != FORBIDDEN:
                raise
            # A key for some agents may not read runs. The same request again gives the same run, from its beginning.
            self._resumes = False
            yield from self._client.events(self._path, self._body, SILENCE_S)

    def _is_new(self, event: Mapping[str, Any]) -> bool:
        """Notes the place in the stream; False for a frame that was seen before."""
        self._begun = True
        self.run_id = event.get("run_id") or self.run_id
        number = event.get("seq_id")
        if not isinstance(number, int):
            return True
        seen, self._last = number <= self._last, max(number, self._last)
        return not seen or event.get("message_type") == "ping"

    def _await_server(self) -> None:
        """Waits until the server answers again. Raises Unreachable when it does not."""
        if not wait_until(lambda: _answers(self._client), RECONNECT_S):
            raise Unreachable(
                f"the connection to {self._client.base_url} was lost and the server does not answer. The turn goes on "
                "when the server runs again; `kelpie server status` shows whether it does"
            )


def _answers(client: Client) -> bool:
    try:
        client.get("/v1/health/")
    except KelpieError:
        return False
    return True
