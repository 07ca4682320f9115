"""Records snapshots anew, and says which changed."""

import sys
from pathlib import Path

from tests.snapshots.session import play

FOLDER = Path(__file__).parent


def main() -> None:
    """The command."""
    for given in [Path(name) for name in sys.argv[1:]] or [FOLDER]:
        for file in sorted(given.rglob("*.txt")) if given.is_dir() else [given]:
            before = file.read_text()
            after = play(before)
            if after != before:
                file.write_text(after)
                print(f"changed {file}")


if __name__ == "__main__":
    main()
