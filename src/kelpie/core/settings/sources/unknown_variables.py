"""Environment variables that look like settings and are none: each with the closest setting."""

import difflib
import re
from collections.abc import Iterable

from kelpie.core.settings.settings import VARIABLES

PREFIX = "KELPIE_"
OTHERS = frozenset({"KELPIE_CONFIG"})
OF_TESTS = "KELPIE_TEST_"
SHOWN_MAX = 5
_CLOSE = 0.6
_OF_KUBERNETES = re.compile(r"KELPIE_(SERVICE_(HOST|PORT)|PORT_\d+_)")  # it sets them beside a service named kelpie


def unknown_variables(names: Iterable[str]) -> list[str]:
    """The names that begin with KELPIE_ and set nothing, sorted."""
    known = VARIABLES.keys() | OTHERS
    return sorted(name for name in names if name.startswith(PREFIX) and name not in known and not _of_others(name))


def _of_others(name: str) -> bool:
    return name.startswith(OF_TESTS) or _OF_KUBERNETES.match(name) is not None


def closest(name: str) -> str | None:
    """The variable that was probably meant, or None."""
    return next(iter(difflib.get_close_matches(name, [*VARIABLES, *OTHERS], 1, _CLOSE)), None)


def described(name: str) -> str:
    """A sentence about one unknown variable."""
    meant = closest(name)
    return f"{name} is not a setting and has no effect" + (f"; did you mean {meant}?" if meant else "")


def described_all(names: Iterable[str]) -> list[str]:
    """A sentence for each unknown variable; of very many, the first few and the number of the others."""
    unknown = unknown_variables(names)
    told = [described(name) for name in unknown[:SHOWN_MAX]]
    rest = len(unknown) - SHOWN_MAX
    return [*told, f"{rest} more variables that begin with {PREFIX} are not settings"] if rest > 0 else told
