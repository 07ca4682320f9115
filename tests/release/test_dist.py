"""The files of a release: the same bytes twice, all of the source in the wheel, and a wheel that runs."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from kelpie import __version__
from release import dist
from release.dist import CHECKSUMS, DistError, build, export
from release.pinned import ROOT, running
from tests.cli.live import live

EPOCH = 1_790_000_000
WHEEL, SDIST, BILL = (f"kelpie_agents-{__version__}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".cdx.json"))
TREE = ("src", "requirements", "release", "tests/typescript")
COMMAND_S = 120


def copied(into: Path, files: tuple[str, ...]) -> Path:
    """The parts of this tree that a release depends on, without what git ignores."""
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in files:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, into / name, ignore=ignored, copy_function=shutil.copyfile)
        else:
            into.mkdir(exist_ok=True)
            shutil.copyfile(ROOT / name, into / name)
    return into


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("released")
    build(copied(place / "tree", (*TREE, "pyproject.toml", "README.md", "LICENSE")), place / "dist", EPOCH)
    return place / "dist"


def test_two_builds_are_the_same_bytes(released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere, by another user's habits, at another time, with files that were written in another order."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    before = os.umask(0o077)
    try:
        tree = copied(tmp_path / "elsewhere", ("README.md", "LICENSE", "pyproject.toml", *reversed(TREE)))
        for number, file in enumerate(sorted(tree.rglob("*"))):
            os.utime(file, (number, number))
        build(tree, tmp_path / "dist", EPOCH)
    finally:
        os.umask(before)
    assert sorted(each.name for each in released.iterdir()) == sorted([CHECKSUMS, BILL, SDIST, WHEEL])
    for file in released.iterdir():
        assert file.read_bytes() == (tmp_path / "dist" / file.name).read_bytes(), file.name


def test_the_checksums_are_those_of_the_files(released: Path) -> None:
    told = dict(line.split("  ")[::-1] for line in (released / CHECKSUMS).read_text().splitlines())
    assert told.keys() == {BILL, SDIST, WHEEL}
    assert all(hashlib.sha256((released / name).read_bytes()).hexdigest() == found for name, found in told.items())


def test_the_wheel_and_the_sdist_have_every_file_of_the_package(released: Path) -> None:
    files = [file for file in (ROOT / "src").rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    source = {str(file.relative_to(ROOT / "src")): file.read_bytes() for file in files}
    assert {Path(name).suffix for name in source} > {".py", ".cjs", ".txt"}
    with zipfile.ZipFile(released / WHEEL) as wheel:
        packed = {name: wheel.read(name) for name in wheel.namelist()}
    assert {name: data for name, data in packed.items() if ".dist-info/" not in name} == source
    with tarfile.open(released / SDIST) as archive:
        members = [(each, archive.extractfile(each)) for each in archive]
        unpacked = {each.name.partition("/")[2]: stream.read() for each, stream in members if stream is not None}
    assert {(each.uid, each.gid, each.uname, each.gname, each.mtime) for each, _ in members} == {(0, 0, "", "", EPOCH)}
    assert {name[4:]: data for name, data in unpacked.items() if name.startswith("src/")} == source
    assert {"requirements/run.txt", "LICENSE", "PKG-INFO"} < unpacked.keys()


def test_the_bill_of_materials_names_every_pin_with_its_hashes(released: Path) -> None:
    bill = json.loads((released / BILL).read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"] == "2026-09-21T14:13:20Z"
    found = {each["purl"]: {one["content"] for one in each["hashes"]} for each in bill["components"]}
    assert found == {pin.purl: set(pin.hashes) for pin in running()} and all(found.values())
    archives = bill["metadata"]["component"]["externalReferences"]
    assert {each["url"]: each["hashes"][0]["content"] for each in archives} == {
        name: hashlib.sha256((released / name).read_bytes()).hexdigest() for name in (SDIST, WHEEL)
    }
    refs = {bill["metadata"]["component"]["bom-ref"], *found}
    needs = {each["ref"]: set(each["dependsOn"]) for each in bill["dependencies"]}
    assert needs.keys() == refs and set().union(*needs.values()) == set(found)
    assert "pkg:pypi/starlette@" in str(needs[next(ref for ref in refs if ref.startswith("pkg:pypi/fastapi@"))])
    assert (released / BILL).read_text().count("://") == 1  # of the schema: no registry is named


def test_the_installed_wheel_runs(released: Path, tmp_path: Path) -> None:
    """In an environment of its own, beside the packages that are installed here."""
    place = tmp_path / "venv"
    venv.create(place, symlinks=True)
    python = place / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--quiet"]
    _run([*pip, "install", "--no-index", "--no-deps", "--no-compile", str(released / WHEEL)], tmp_path)
    site = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], tmp_path).strip())
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert Path(_run([str(python), "-c", "import kelpie; print(kelpie.__file__)"], tmp_path).strip()).is_relative_to(
        site
    )
    command = str(place / "bin/kelpie")
    with live(tmp_path / "data") as environment:
        env = environment.env
        assert __version__ in _run([command, "version"], tmp_path, env)
        _run([command, "server", "start"], tmp_path, env)
        try:
            with httpx.Client(base_url=environment.url, timeout=COMMAND_S, trust_env=False) as client:
                assert client.get("/v1/health/").json()["kelpie_version"] == __version__
                agent = client.post("/v1/agents/", json={"name": "first", "model": "kelpie/demo"}).json()
                said = {"messages": [{"role": "user", "content": "hello"}]}
                answer = client.post(f"/v1/agents/{agent['id']}/messages", json=said)
                assert answer.json()["messages"][-1]["message_type"] == "assistant_message", answer.text
        finally:
            _run([command, "server", "stop"], tmp_path, env)


def _run(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "kept.txt").write_text("committed")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-C", str(tree)]
    dated = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_COMMITTER_DATE": f"{EPOCH} +0900"}
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        _run([*git, *arguments], tmp_path, dated)
    return tree


def test_a_release_has_what_is_committed_and_nothing_else(repository: Path, tmp_path: Path) -> None:
    (repository / "kept.txt").write_text("changed")
    (repository / "secret.txt").write_text("not committed")
    assert export(repository, tmp_path / "out") == EPOCH
    assert {each.name: each.read_text() for each in (tmp_path / "out").iterdir()} == {"kept.txt": "committed"}
    with pytest.raises(DistError, match="git archive failed"):
        export(tmp_path / "out", tmp_path / "again")


def test_a_folder_with_other_files_is_left_as_it_is(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "dist"
    out.mkdir()
    (out / "older.whl").write_text("of another release")

    def built(_source: Path, into: Path, _epoch: int) -> None:
        into.mkdir()
        (into / CHECKSUMS).write_text("new")

    monkeypatch.setattr(dist, "ROOT", repository)
    monkeypatch.setattr(dist, "build", built)
    with pytest.raises(DistError, match=r"not of this release: older\.whl"):
        dist.main(out)
    assert [each.name for each in out.iterdir()] == ["older.whl"]
    (out / "older.whl").unlink()
    dist.main(out)
    assert (out / CHECKSUMS).read_text() == "new"
