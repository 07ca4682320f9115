"""Everything that Kelpie pins: Python packages in requirements/, the embedding model, and packages of npm."""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kelpie.tools.custom.environments import TYPE_STRIPPER

ROOT = Path(__file__).resolve().parents[1]
PYPI, NPM = "PyPI", "npm"
_LINE = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+]+)((?:\s+--hash=sha256:[0-9a-f]{64})+)")


@dataclass(frozen=True, slots=True)
class Pinned:
    """One version of a package, with the hashes of its archives and the packages that need it."""

    ecosystem: str
    name: str
    version: str
    hashes: tuple[str, ...] = ()  # hexadecimal
    algorithm: str = "SHA-256"
    via: tuple[str, ...] = ()

    @property
    def purl(self) -> str:
        """The package URL, see https://github.com/package-url."""
        kind = self.ecosystem.lower()
        name = re.sub(r"[-_.]+", "-", self.name).lower() if self.ecosystem == PYPI else self.name.replace("@", "%40")
        return f"pkg:{kind}/{name}@{self.version}"


def requirements(text: str) -> Iterator[Pinned]:
    """The pins of a requirements file. Raises ValueError for a line without a version or a hash."""
    for entry in re.split(r"\n(?=\S)", text.replace("\\\n", " ")):
        line, _, comment = entry.partition("\n")
        if not line.strip() or line.startswith("#"):
            continue
        if (match := _LINE.fullmatch(line.strip())) is None:
            raise ValueError(f"{line[:80]!r} is not name==version with a hash")
        hashes = tuple(re.findall(r"sha256:([0-9a-f]{64})", match[3]))
        via = tuple(re.findall(r"# via (.*)", comment)[0].split(", ")) if "# via" in comment else ()
        yield Pinned(PYPI, match[1], match[2], hashes, via=via)


def running(root: Path = ROOT) -> list[Pinned]:
    """What the product needs, and what it installs when it is asked to: the embedding model and the type stripper."""
    model = root / "src/kelpie/world/embedding/embedding-model.txt"
    sha512 = base64.b64decode(TYPE_STRIPPER.integrity.removeprefix("sha512-")).hex()
    return [
        *requirements((root / "requirements/run.txt").read_text()),
        *requirements(model.read_text()),
        Pinned(NPM, TYPE_STRIPPER.name, TYPE_STRIPPER.version, (sha512,), "SHA-512"),
    ]


def developing(root: Path = ROOT) -> list[Pinned]:
    """What builds and tests the product."""
    names = ("pip", "build", "test", "live", "letta-client-0.1", "agentic-learning", "mcp-1", "mcp-server-fetch")
    locks = [root / f"tests/{folder}/package-lock.json" for folder in ("typescript", "clients", "mcp")]
    return [
        *(pinned for name in names for pinned in requirements((root / f"requirements/{name}.txt").read_text())),
        *sorted({module for lock in locks for module in _modules(lock)}, key=lambda pin: (pin.name, pin.version)),
    ]


def _modules(lock: Path) -> Iterator[Pinned]:
    """The packages of a lock of npm; one that is installed under another name has its own beside it."""
    for path, module in json.loads(lock.read_text())["packages"].items():
        if path:
            yield Pinned(NPM, module.get("name") or path.rpartition("node_modules/")[2], module["version"])
