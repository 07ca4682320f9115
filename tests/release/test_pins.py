"""Pins and their hashes: complete for every supported system, and the only thing that `make` installs."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from kelpie.world.embedding.minilm import REQUIREMENT
from release.pinned import ROOT, requirements
from release.pins import PURPOSES, PinError, archives, check_wheels, purposes, rendered, versions

FILES = {purpose: ROOT / f"requirements/{purpose}.txt" for purpose in PURPOSES}
CLIENTS = [
    ROOT / f"requirements/{name}.txt" for name in ("letta-client-0.1", "agentic-learning", "mcp-1", "mcp-server-fetch")
]
LOCKS = [ROOT / f"tests/{folder}/package-lock.json" for folder in ("typescript", "clients", "mcp")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = Version("1.0")
SHA = "0" * 64


def test_the_requirements_are_the_pins_and_each_has_hashes() -> None:
    pins = versions((ROOT / "constraints.txt").read_text())
    listed = [pin for file in FILES.values() for pin in requirements(file.read_text())]
    assert sorted((canonicalize_name(pin.name), Version(pin.version)) for pin in listed) == sorted(
        (name, version) for name, (_, version) in pins.items()
    ), "run `make pins`"
    assert all(pin.hashes for pin in listed)


def test_nothing_is_lacking_on_any_supported_system() -> None:
    """The metadata of the installed packages says what else they need, there or elsewhere."""
    pins = versions((ROOT / "constraints.txt").read_text())
    for purpose, via in purposes(PROJECT).items():
        text = FILES[purpose].read_text()
        hashes = {canonicalize_name(pin.name): pin.hashes for pin in requirements(text)}
        assert rendered(purpose, pins, via, hashes) == text, "run `make pins`"


def test_no_registry_is_named() -> None:
    for file in (*FILES.values(), *CLIENTS, *LOCKS, REQUIREMENT, ROOT / "constraints.txt", ROOT / "Makefile"):
        assert "://" not in file.read_text() and "index-url" not in file.read_text(), file


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.parent.name)
def test_every_package_of_npm_has_a_hash(lock: Path) -> None:
    modules = {path: module for path, module in json.loads(lock.read_text())["packages"].items() if path}
    assert modules
    assert [path for path, module in modules.items() if "integrity" not in module or "resolved" in module] == []


def test_the_clients_of_the_tests_have_hashes() -> None:
    assert all(pin.hashes for file in CLIENTS for pin in requirements(file.read_text()))


@pytest.mark.parametrize("target", [".venv/.installed-run", ".venv/.installed-test"])
def test_make_installs_nothing_without_a_hash(target: str) -> None:
    """But for Kelpie itself, which is built here, with the build backend that is installed with its hash."""
    told = subprocess.run(["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = re.findall(r"-m pip install ([^|&;}\n]*)", told.replace("\\\n", " "))
    own = [each for each in installs if each.split()[-2:] == ["-e", "."]]
    assert len(own) == 1 and {"--no-deps", "--no-build-isolation"} <= set(own[0].split())
    others = [each for each in installs if each not in own]
    clients = len(CLIENTS) if target.endswith("test") else 0
    assert len(others) == 3 + clients  # pip, the packages, the embedding model
    for each in others:
        assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(each.split()), each
        assert set(re.findall(r"-r (\S+)", each)) <= {
            str(file.relative_to(ROOT)) for file in (*FILES.values(), *CLIENTS, REQUIREMENT)
        }
    assert len(re.findall(r"\bnpm (?:install|ci)\b", told)) == told.count("npm ci ")


def test_an_archive_counts_when_it_is_of_the_version_and_has_a_hash() -> None:
    listed = [
        ("a_b-1.0-py3-none-any.whl", SHA),
        ("a_b-1.0.tar.gz", "1" * 64),
        ("a_b-1.0-py3-none-any.whl", SHA),  # in a second index
        ("a_b-1.0-cp311-cp311-win32.whl", None),
        ("a_b-1.1-py3-none-any.whl", "2" * 64),
        ("a_b_c-1.0-py3-none-any.whl", "3" * 64),
        ("a_b-1.0-py2.7.egg", "4" * 64),
    ]
    assert archives(listed, "a-b", VERSION) == {"a_b-1.0-py3-none-any.whl": SHA, "a_b-1.0.tar.gz": "1" * 64}


def test_two_indexes_with_different_archives_are_an_error() -> None:
    with pytest.raises(PinError, match="two indexes list it with different hashes"):
        archives([("a-1.0.tar.gz", SHA), ("a-1.0.tar.gz", "1" * 64)], "a", VERSION)
    with pytest.raises(PinError, match="no index lists an archive with a SHA-256 hash"):
        archives([("a-1.0.tar.gz", None)], "a", VERSION)


def test_every_supported_system_needs_a_wheel() -> None:
    check_wheels("a", VERSION, ["a-1.0-py3-none-any.whl"])
    linux = [f"a-1.0-cp311-abi3-manylinux_2_17_{machine}.whl" for machine in ("x86_64", "aarch64")]
    check_wheels("a", VERSION, [*linux, "a-1.0-cp311-abi3-macosx_11_0_arm64.whl"])
    with pytest.raises(PinError, match=r"a==1.0 has no wheel for CPython 3.11 on darwin arm64"):
        check_wheels("a", VERSION, [*linux, "a-1.0.tar.gz"])
    with pytest.raises(PinError, match=r"has no wheel for CPython 3\.14 on linux x86_64"):
        check_wheels("a", VERSION, [f"a-1.0-cp3{minor}-cp3{minor}-manylinux_2_28_x86_64.whl" for minor in (11, 12, 13)])


@pytest.mark.parametrize("line", ["a", "a>=1", "a==1 ; python_version < '3.12'", "a==1 --hash=sha256:0"])
def test_a_line_that_is_no_pin_is_refused(line: str) -> None:
    with pytest.raises(PinError, match="is not name==version"):
        versions(line)
    with pytest.raises(ValueError, match="is not name==version with a hash"):
        list(requirements(line))
