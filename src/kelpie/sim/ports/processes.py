"""The `Processes` port in the simulation: commands are registered functions in virtual time; no process is started."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from kelpie.sim.loop.errors import NotSimulated
from kelpie.world.processes.processes import ProcessResult

Program = Callable[[Sequence[str], bytes, Mapping[str, str]], Awaitable[ProcessResult]]


class SimProcesses:
    """Runs registered programs by the name in argv[0]."""

    def __init__(self, programs: Mapping[str, Program] | None = None) -> None:
        self._programs = dict(programs or {})

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        output_bytes_max: int,
    ) -> ProcessResult:
        program = self._programs.get(argv[0])
        if program is None:
            raise NotSimulated(f"no program '{argv[0]}' was registered with this simulation")
        try:
            async with asyncio.timeout(timeout_s):
                finished = await program(argv, stdin, env or {})
        except TimeoutError:
            return ProcessResult(-9, b"", b"", timed_out=True)
        cut = len(finished.stdout) > output_bytes_max or len(finished.stderr) > output_bytes_max
        return replace(
            finished,
            stdout=finished.stdout[:output_bytes_max],
            stderr=finished.stderr[:output_bytes_max],
            truncated=cut,
        )
