"""The files of a release: sdist, wheel, SBOM and their checksums (`make dist`).

They are built from an export of the last commit, never from the working tree, with the installed build backend, and
dated at that commit: whoever builds the same commit with the same Python gets the same bytes. No file is replaced
before all are there.
"""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECKSUMS = "SHA256SUMS"


class DistError(Exception):
    """A release that cannot be built."""


def export(tree: Path, into: Path) -> int:
    """Unpacks the last commit of a tree, and returns its time in seconds. Raises DistError."""
    into.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(_git(tree, "archive", "--format=tar", "HEAD"))) as archive:
        archive.extractall(into, filter="data")
    return int(_git(tree, "log", "-1", "--format=%ct", "HEAD"))


def build(source: Path, into: Path, epoch: int) -> None:
    """Builds all files of a release from an exported tree. Raises DistError."""
    into.mkdir(parents=True)
    _run(source, epoch, "hatchling", "build", "-d", str(into))
    archives = sorted(into.iterdir())
    wheel = next(each for each in archives if each.suffix == ".whl")
    bill = _run(source, epoch, "release.sbom", *map(str, archives))
    name, version, *_ = wheel.name.split("-")
    (into / f"{name}-{version}.cdx.json").write_bytes(bill)
    sums = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(into.iterdir())]
    (into / CHECKSUMS).write_text("".join(sums))


def _git(tree: Path, *arguments: str) -> bytes:
    try:
        return subprocess.run(["git", "-C", str(tree), *arguments], check=True, capture_output=True).stdout
    except FileNotFoundError as error:
        raise DistError("git is not installed") from error
    except subprocess.CalledProcessError as error:
        raise DistError(f"git {arguments[0]} failed: {error.stderr.decode(errors='replace').strip()}") from error


def _run(source: Path, epoch: int, module: str, *arguments: str) -> bytes:
    """Runs a module in an exported tree, with nothing of this environment that could be seen in the result."""
    env = {
        "PATH": os.environ["PATH"],
        "SOURCE_DATE_EPOCH": str(epoch),
        "PYTHONPATH": "src",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=source, env=env, capture_output=True)
    if done.returncode != 0:
        raise DistError(f"{module} failed:\n{(done.stderr or done.stdout).decode(errors='replace').strip()}")
    return done.stdout


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        epoch = export(ROOT, source := Path(scratch, "source"))
        build(source, built := Path(scratch, "dist"), epoch)
        names = {each.name for each in built.iterdir()}
        out.mkdir(parents=True, exist_ok=True)
        if others := sorted(each.name for each in out.iterdir() if each.name not in names):
            raise DistError(f"{out} has files that are not of this release: {', '.join(others)}. Remove them first.")
        for each in sorted(built.iterdir()):
            (out / each.name).write_bytes(each.read_bytes())
    if _git(ROOT, "status", "--porcelain"):
        print("Changes that are not committed are not in the release.", file=sys.stderr)
    print((out / CHECKSUMS).read_text(), end="")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except DistError as error:
        sys.exit(f"make dist: {error}")
