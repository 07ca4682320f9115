"""The doctor's report on isolation: checks from inside a sandbox, and the isolation features of this machine."""

from dataclasses import asdict
from typing import Any

from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.output import print_json, print_rows, say, waiting
from kelpie.core.tools.confinement import Isolation
from kelpie.world.cells.bubblewrap import proven
from kelpie.world.isolation import control_group_search
from kelpie.world.isolation.probes import isolation

HOLDS = "Tool code runs in process-level sandboxes. Checks just run from inside one:"
REFUSED = "Tool code is refused on this machine: "
BUILDING = "Isolation features of this machine, each tested separately:"


def isolation_report() -> dict[str, Any]:
    """Attacks a cell from inside and tests each isolation feature separately. This takes some seconds."""
    proof = proven()
    return {
        "sandbox": Isolation.process.value if proof.lacking is None else None,
        "note": HOLDS if proof.lacking is None else REFUSED + proof.lacking,
        "checks": [asdict(each) for each in proof.tried],
        "machine": [asdict(each) for each in (*isolation(), control_group_search.tried())],
    }


def print_isolation(told: dict[str, Any]) -> None:
    say(told["note"])
    _print_tried("check", told["checks"])
    say()
    say(BUILDING)
    _print_tried("feature", told["machine"])


def isolation_only(*, as_json: bool) -> int:
    """Prints only this report. Returns 1 when tool code is refused on this machine."""
    with waiting("Testing the isolation of this machine ..."):
        told = isolation_report()
    if as_json:
        print_json(told)
    else:
        print_isolation(told)
    return OK if told["sandbox"] else ERROR


def _print_tried(kind: str, tried: list[dict[str, Any]]) -> None:
    rows = [(each["name"], each["works"], each["seen"], each["remedy"]) for each in tried]
    print_rows((kind, "works", "observed", "remedy"), rows)
