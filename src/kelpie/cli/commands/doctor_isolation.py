"""The doctor's part on isolation: whether the sandbox holds on this machine, and what each means for it does here."""

from dataclasses import asdict
from typing import Any

from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.output import print_json, print_rows, waiting
from kelpie.core.tools.confinement import Isolation
from kelpie.world.cells.bubblewrap import proven
from kelpie.world.isolation import control_group_search
from kelpie.world.isolation.probes import isolation

HOLDS = "Code of tools runs in cells of the class `process`. This was tried just now, from within a cell:"
REFUSED = "Code of tools is refused on this machine: "
BUILDING = "What a sandbox can build on, each tried by itself:"


def isolation_told() -> dict[str, Any]:
    """Attacks a cell and tries each means alone; takes some seconds."""
    proof = proven()
    return {
        "sandbox": Isolation.process.value if proof.lacking is None else None,
        "note": HOLDS if proof.lacking is None else REFUSED + proof.lacking,
        "walls": [asdict(each) for each in proof.tried],
        "machine": [asdict(each) for each in (*isolation(), control_group_search.tried())],
    }


def print_isolation(told: dict[str, Any]) -> None:
    print(told["note"])
    _print_tried("wall", told["walls"])
    print()
    print(BUILDING)
    _print_tried("means", told["machine"])


def isolation_only(*, as_json: bool) -> int:
    """Prints this part alone; 1 when code of tools is refused here."""
    with waiting("Attacking a cell, and trying what this machine offers ..."):
        told = isolation_told()
    if as_json:
        print_json(told)
    else:
        print_isolation(told)
    return OK if told["sandbox"] else ERROR


def _print_tried(kind: str, tried: list[dict[str, Any]]) -> None:
    rows = [(each["name"], each["works"], each["seen"], each["remedy"]) for each in tried]
    print_rows((kind, "works", "seen", "remedy"), rows)
