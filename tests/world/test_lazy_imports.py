"""Modules that are imported with their first use."""

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kelpie.world.lazy_imports import LazyModule, lazily

DEADLINE_S = 30.0
COUNTED = "import lazy_counts\nlazy_counts.runs += 1\nvalue = 42\nother = value + 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "lazy_sample").mkdir()
    (tmp_path / "lazy_sample" / "__init__.py").write_text("made = True\n")
    (tmp_path / "lazy_sample" / "part.py").write_text(COUNTED)
    (tmp_path / "lazy_counts.py").write_text("runs = 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("lazy_")]:
        del sys.modules[name]


def runs() -> int:
    return importlib.import_module("lazy_counts").runs


def part() -> ModuleType:
    with lazily:
        return importlib.import_module("lazy_sample.part")


@pytest.mark.usefixtures("folder")
def test_a_module_runs_with_its_first_use_and_once() -> None:
    module = part()
    assert isinstance(module, LazyModule)
    assert runs() == 0
    assert importlib.import_module("lazy_sample.part") is module, "importing it again is not a use"
    assert runs() == 0
    assert (module.value, module.other) == (42, 43)
    assert type(module) is ModuleType
    with pytest.raises(AttributeError):
        module.missing  # noqa: B018
    assert runs() == 1


@pytest.mark.usefixtures("folder")
def test_a_name_that_is_set_stays_set() -> None:
    module = part()
    module.value = 7  # type: ignore[attr-defined]
    assert (module.value, module.other) == (7, 43)
    assert runs() == 1


@pytest.mark.usefixtures("folder")
def test_a_package_around_it_is_imported_at_once() -> None:
    part()
    assert type(sys.modules["lazy_sample"]) is ModuleType
    assert sys.modules["lazy_sample"].made


@pytest.mark.usefixtures("folder")
def test_outside_the_context_a_module_runs_at_once() -> None:
    assert type(importlib.import_module("lazy_sample.part")) is ModuleType
    assert runs() == 1


def test_a_module_that_fails_says_so_at_each_use_until_it_does_not(folder: Path) -> None:
    source = folder / "lazy_sample" / "part.py"
    source.write_text("raise OSError('the disk is on strike')\n")
    module = part()
    for _ in range(2):
        with pytest.raises(OSError, match="on strike"):
            module.value  # noqa: B018
    source.write_text(COUNTED)
    importlib.invalidate_caches()
    assert module.value == 42


def test_another_thread_waits_for_the_whole_module(folder: Path) -> None:
    (folder / "lazy_gate.py").write_text("import threading\nentered = threading.Event()\nopened = threading.Event()\n")
    (folder / "lazy_sample" / "part.py").write_text(
        "import lazy_gate\nvalue = 42\nlazy_gate.entered.set()\n"
        f"assert lazy_gate.opened.wait({DEADLINE_S})\nother = 43\n"
    )
    gate = importlib.import_module("lazy_gate")
    module, seen = part(), list[int]()
    first = threading.Thread(target=lambda: seen.append(module.other))
    second = threading.Thread(target=lambda: seen.append(module.other))
    first.start()
    assert gate.entered.wait(DEADLINE_S)
    second.start()
    gate.opened.set()
    for thread in (first, second):
        thread.join(DEADLINE_S)
    assert seen == [43, 43]
