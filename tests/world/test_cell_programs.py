"""The programs inside a cell by themselves: what their start imports, and JSON without the module for it."""

import json
import subprocess
from typing import Any

import pytest

from kelpie.world.cell_programs import quick_json
from kelpie.world.cells.mounts import PROGRAMS, interpreter

VALUES: list[Any] = [
    None, True, 0, -7, 2**70, 1.5, -0.0, "", "é\n\"\\\x00\U0001f600", [], {}, [[], {}], {"a": {"b": [1, None, "c"]}},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_it_is_the_same_json(value: Any) -> None:
    assert quick_json.dumps(value) == json.dumps(value).encode()
    assert quick_json.loads(json.dumps(value).encode()) == value
    assert quick_json.loads(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) == value


@pytest.mark.parametrize("text", [b"", b"{", b"[1,", b'"', b"nonsense", b"{1: 2}"])
def test_what_is_no_json_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        quick_json.loads(text)
    with pytest.raises(TypeError):
        quick_json.dumps({"a": object()})


def _inside(source: str) -> str:
    """What a program prints that finds the programs of a cell, started as they are."""
    command = [
        interpreter(),
        "-I",
        "-S",
        "-X",
        "utf8",
        "-c",
        f"import sys; sys.path.insert(0, {str(PROGRAMS)!r})\n{source}",
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def test_without_its_fast_part_the_module_does_the_work() -> None:
    source = """
import _json
del _json.make_encoder
import quick_json
print(quick_json.loads(b'{"a": [1]}'), quick_json.dumps({"a": [1]}))
"""
    assert _inside(source) == "{'a': [1]} b'{\"a\": [1]}'\n"


def test_a_start_and_a_plain_call_import_next_to_nothing() -> None:
    """Each of these would make every cold start some milliseconds longer."""
    source = """
import launcher, python_function
told = python_function.perform({"source": "def tool(a): return {'a': [a]}", "function": "tool", "arguments": {"a": 1}})
heavy = {"json", "re", "enum", "typing", "functools", "collections", "socket", "importlib", "inspect", "asyncio"}
print(told["value"], sorted(heavy & set(sys.modules)))
"""
    assert _inside(source) == "{'a': [1]} []\n"
