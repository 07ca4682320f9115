"""A server whose clock can be ahead of this machine's, so that no test waits for minutes."""

import os
from pathlib import Path

from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.world.clock import SystemClock
from tests.acceptance.served import FOREGROUND, Served, environment
from tests.forks import become, call


class LateServer(Served):
    """A server that believes, from its next start on, that it is `ahead_s` later than it is."""

    ahead_s = 0

    def launch(self) -> None:
        said = self.data_dir / "stderr.txt"
        env = environment(self.data_dir, **self._settings)
        self._process = call(_become_late, self.ahead_s, list(FOREGROUND), env, (Path(os.devnull), said, said))


def _become_late(ahead_s: int, arguments: list[str], env: dict[str, str], streams: tuple[Path, Path, Path]) -> None:
    now = SystemClock.now

    def later(self: SystemClock) -> Micros:
        return now(self) + ahead_s * MICROS_PER_SECOND

    SystemClock.now = later
    become(arguments, env, streams, Path.cwd(), None)
