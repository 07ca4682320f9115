"""The entry point of the `kelpie` command.

Commands that scripts call often, and the server process itself, are dispatched here before anything heavy is imported;
all other commands go to `cli.app`. That is why imports stand inside functions here, as they do for the same reason in
`cli.app`, `cli.output` and the command modules.
"""

import gc
import os
import sys
from collections.abc import Sequence
from types import ModuleType, TracebackType

from kelpie import __version__
from kelpie.cli.exit_codes import ERROR
from kelpie.cli.output import say
from kelpie.core.errors import KelpieError

SYNONYMS = {
    "status": ("server", "status"),
    "ps": ("agents", "list"),
    "serve": ("server", "start", "--foreground"),
}


def main() -> None:
    """Runs the command line and exits with its code."""
    sys.excepthook = _print_traceback
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; an error that the user can act on becomes one line."""
    try:
        return _dispatch(list(arguments))
    except KelpieError as error:
        say(f"kelpie: {error}", file=sys.stderr)
        return ERROR


def _print_traceback(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Prints an unexpected exception; its message may hold a text of the server."""
    import traceback

    say("".join(traceback.format_exception(kind, error, frames)), file=sys.stderr, end="")


def _dispatch(arguments: list[str]) -> int:
    match _without_synonym(arguments):
        case ["version"] | ["--version"] | ["-v"]:
            say(f"kelpie {__version__}")
            return 0
        case ["server", "status"]:
            from kelpie.cli.server.status import status

            _warn_of_unknown_variables()
            return status()
        case ["server", "status", "--json"]:
            from kelpie.cli.server.status import status

            _warn_of_unknown_variables()
            return status(as_json=True)
        case ["server", "start", "--foreground"]:
            _prepare_to_serve()
            from kelpie.cli.server.process import serve_here

            return serve_here()
        case ["server", "start", "--detached"]:  # what `kelpie server start` runs in the background
            _prepare_to_serve()
            from kelpie.cli.server.process import serve_detached

            return serve_detached()
        case ["--show-completion" | "--install-completion", _]:
            # The shell is named, so typer must not look for one among the parents of this process.
            os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
            return _typed(arguments)
        case typed:
            return _typed(typed)


def _without_synonym(arguments: list[str]) -> list[str]:
    """The same command in the words of this program, if it begins with a word of another one."""
    match arguments:
        case ["help", *words]:
            return [*words, "--help"]
        case ["status" | "ps" | "serve" as word, *rest]:
            return [*SYNONYMS[word], *rest]
        case _:
            return arguments


def _typed(arguments: list[str]) -> int:
    gc.disable()  # imports leave no garbage
    from kelpie.cli.app import app

    gc.freeze()
    gc.enable()
    if not _completes():
        _warn_of_unknown_variables()
    return app(arguments)


def _completes() -> bool:
    """Checks whether a shell asks for completion, whose terminal must stay clean."""
    return "_KELPIE_COMPLETE" in os.environ


def _warn_of_unknown_variables() -> None:
    from kelpie.core.settings.settings import VARIABLES

    if all(name in VARIABLES or not name.startswith("KELPIE_") for name in os.environ):
        return
    from kelpie.core.settings.sources.unknown_variables import described_all

    for told in described_all(os.environ):
        say(f"kelpie: warning: {told}", file=sys.stderr)


def _prepare_to_serve() -> None:
    """Hides modules that a server never uses, and collects no garbage until the server serves.

    httpx would import its command line with click, rich and pygments, uvicorn its own with click and multiprocessing,
    and FastAPI the old pydantic, only to refuse models of it. A server keeps its imports for as long as it runs. A
    start makes little garbage; looking for it among all that is imported takes a fifth of the time.
    """
    gc.disable()
    for name in ("httpx._main", "rich", "pygments", "pydantic.v1"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    unused = ModuleType("uvicorn.main")  # uvicorn cannot do without it as httpx can
    unused.__dict__.update(dict.fromkeys(("Server", "main", "run")))
    sys.modules.setdefault("uvicorn.main", unused)


if __name__ == "__main__":
    main()
