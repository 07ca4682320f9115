"""Records snapshots anew, and says which changed."""

import sys
from pathlib import Path

from kelpie.sim.loop.errors import SimError
from tests.snapshots.session import NoStep, play

FOLDER = Path(__file__).parent


def main() -> None:
    """The command."""
    failed: list[str] = []
    for given in [Path(name) for name in sys.argv[1:]] or [FOLDER]:
        for file in sorted(given.rglob("*.txt")) if given.is_dir() else [given]:
            before = file.read_text()
            try:
                after = play(before)
            except (NoStep, SimError) as error:
                failed.append(f"not recorded {file}: {error}")
                continue
            if after != before:
                file.write_text(after)
                print(f"changed {file}")
    sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
