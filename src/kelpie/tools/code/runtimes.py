"""Programs and commands that run code of each language in a cell: data only. The code goes in as it is and is never
assembled from pieces.
"""

from dataclasses import dataclass, replace

import orjson

from kelpie.core.tools.confinement import DEFAULT_CONFINEMENT, MEGABYTE, Confinement, Runner
from kelpie.core.tools.languages import Language
from kelpie.sandbox.runner_messages import function_call
from kelpie.tools.custom.environments import PYTHON_PACKAGES

MISSING_CODE = 127
MISSING = "kelpie: there is no such runtime here"
NO_TYPES = b"TypeScript needs Node.js"  # what the runner says of a Node.js that is too old
# Its arguments: the program to look for, the file to write, and the command. A missing program is reported, not tried.
_SCRIPT = f"""
command -v "$1" >/dev/null 2>&1 || {{ echo "{MISSING}" >&2; exit {MISSING_CODE}; }}
cat > "$2" && shift 2 && exec "$@" < /dev/null
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A language whose code is a file that a program runs. `memory_bytes` is the least memory the program needs."""

    title: str
    file: str
    command: tuple[str, ...]
    remedy: str
    memory_bytes: int = 0


RUNTIMES = {
    Language.js: Runtime("Node.js", "main.js", ("node",), "install the package nodejs", 512 * MEGABYTE),
    Language.ts: Runtime(
        "A Node.js that runs TypeScript", "main.ts", ("node",), "install Node.js 22.13 or newer", 512 * MEGABYTE
    ),
    Language.r: Runtime("R", "main.R", ("Rscript", "--vanilla"), "install the package r-base-core", 512 * MEGABYTE),
    Language.java: Runtime(
        "Java",
        "Main.java",
        ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-Xshare:auto"),
        "install a JDK (default-jdk-headless)",
        768 * MEGABYTE,
    ),
}

# Languages that packages can be installed for, by the names that tools use.
SOURCE_TYPES = {Language.python: "python", Language.js: "javascript", Language.ts: "typescript"}


def default_confinement(language: Language) -> Confinement:
    """The default confinement of its code: with as much memory as the language's own program takes."""
    least = RUNTIMES[language].memory_bytes if language in RUNTIMES else 0
    return replace(DEFAULT_CONFINEMENT, memory_bytes=max(least, DEFAULT_CONFINEMENT.memory_bytes))


def request(language: Language, code: str) -> tuple[Runner, bytes]:
    """The program that runs the code, and its input."""
    runtime = RUNTIMES.get(language)
    if runtime is None:
        return Runner.python, function_call(code, None, {}, paths=[PYTHON_PACKAGES])
    if language is Language.ts:
        return Runner.node, function_call(code, None, {}, typescript=True)
    return Runner.command, command(
        "sh", "-c", _SCRIPT, "sh", runtime.command[0], runtime.file, *runtime.command, runtime.file, stdin=code
    )


def command(*argv: str, stdin: str = "", cwd: str = "/tmp") -> bytes:
    """The request of a job that runs a program."""
    return orjson.dumps({"argv": argv, "stdin": stdin, "cwd": cwd})
