"""`make pins`: asks pip's indexes for the hashes of all pins, and writes requirements/.

The indexes are asked through pip's own code, so that its settings, proxies, certificates and credentials hold.
"""

import sys
import tomllib
from collections.abc import Iterable

from pip._internal.commands.download import DownloadCommand
from pip._internal.index.collector import LinkCollector, parse_links
from pip._internal.models.link import Link

from release.pins import ROOT, PinError, archives, check_wheels, purposes, rendered, versions

REQUIREMENTS = ROOT / "requirements"


def listed(collector: LinkCollector, name: str) -> list[tuple[str, str | None]]:
    """All archives of a package in pip's indexes, each with its SHA-256 where the index tells it."""
    found: list[tuple[str, str | None]] = []
    for url in collector.search_scope.get_index_urls_locations(name):
        page = collector.fetch_response(Link(url))
        for link in parse_links(page) if page is not None else ():
            found.append((str(link.filename), link.hash if link.hash_name == "sha256" else None))
    return found


def main() -> None:
    pins = versions((ROOT / "constraints.txt").read_text())
    wanted = purposes(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    needed = {name for via in wanted.values() for name in via}
    if lacking := sorted(needed - pins.keys()):
        raise PinError(f"constraints.txt has no pin for {', '.join(lacking)}")
    if unused := sorted(pins.keys() - needed):
        raise PinError(f"constraints.txt pins {', '.join(unused)}, which nothing needs")
    hashes: dict[str, Iterable[str]] = {}
    command = DownloadCommand("download", "")
    options, _ = command.parse_args([])
    with command.main_context():
        collector = LinkCollector.create(command.get_default_session(options), options=options)
        for name in sorted(needed):
            written, version = pins[name]
            found = archives(listed(collector, name), name, version)
            check_wheels(written, version, found)
            hashes[name] = found.values()
    REQUIREMENTS.mkdir(exist_ok=True)
    for purpose, via in wanted.items():
        (REQUIREMENTS / f"{purpose}.txt").write_text(rendered(purpose, pins, via, hashes))


if __name__ == "__main__":
    try:
        main()
    except PinError as error:
        sys.exit(f"make pins: {error}")
