"""Jobs for the tests of the sandbox."""

import json
from typing import Any

from kelpie.core.tools.confinement import DEFAULT_CONFINEMENT, Confinement
from kelpie.sandbox.port import Mount, Runner, SandboxJob

# Tells how many processes it could start.
FORKS = """
import os
def tool():
    children = 0
    try:
        while children < 1000:
            if os.fork() == 0:
                os.read(os.pipe()[0], 1)
            children += 1
    except OSError:
        pass
    return children
"""


def script(source: str, most: Confinement = DEFAULT_CONFINEMENT, mounts: tuple[Mount, ...] = ()) -> SandboxJob:
    return SandboxJob(Runner.python, json.dumps({"source": source}).encode(), confinement=most, mounts=mounts)


def function(source: str, name: str = "tool", most: Confinement = DEFAULT_CONFINEMENT, **arguments: Any) -> SandboxJob:
    told = {"source": source, "function": name, "arguments": arguments, "agent_state": None}
    return SandboxJob(Runner.python, json.dumps(told).encode(), confinement=most)


def command(*argv: str, stdin: str = "", most: Confinement = DEFAULT_CONFINEMENT) -> SandboxJob:
    return SandboxJob(Runner.command, json.dumps({"argv": argv, "stdin": stdin}).encode(), confinement=most)
