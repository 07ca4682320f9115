"""What a tool may name as a package, and how sets of them are told apart."""

from typing import Any

import pytest

from kelpie.core.errors import InvalidInput
from kelpie.core.tools.package_requirements import Index, needed, written


@pytest.mark.parametrize(
    ("index", "name", "version", "line"),
    [
        (Index.pip, "requests", None, "requests"),
        (Index.pip, "requests", "2.31.0", "requests==2.31.0"),
        (Index.pip, "uvicorn[standard]", ">= 0.2, <1", "uvicorn[standard]>=0.2,<1"),
        (Index.pip, "a.b-c_d", "1.0.post1", "a.b-c_d==1.0.post1"),
        (Index.npm, "left-pad", "^1.3", "left-pad@^1.3"),
        (Index.npm, "@scope/name", "latest", "@scope/name@latest"),
        (Index.npm, "left-pad", "", "left-pad"),
    ],
)
def test_a_package(index: Index, name: str, version: str | None, line: str) -> None:
    assert needed(index, [{"name": name, "version": version}]).lines == (line,)


@pytest.mark.parametrize("index", Index)
@pytest.mark.parametrize(
    "one",
    [
        {"name": "-r"}, {"name": "--index-url=http://x"}, {"name": "a b"}, {"name": "a\n-r x"}, {"name": "./a"},
        {"name": "git+https://x/y"}, {"name": "a@file:///etc"}, {"name": None}, {}, {"name": "x" * 400},
        {"name": "a", "version": "--pre"}, {"name": "a", "version": "file:../x"}, {"name": "a", "version": 1},
        {"name": "a", "version": "1 --index-url=http://x/"}, {"name": "a", "version": "git+ssh://x"},
    ],
)  # fmt: skip
def test_nothing_else_that_an_installer_understands(index: Index, one: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"{index}_requirements"):
        needed(index, [one])


def test_a_set_is_the_same_in_any_order_and_not_for_another_platform() -> None:
    a, b = {"name": "a"}, {"name": "b", "version": "1"}
    one, other = needed(Index.pip, [a, b]), needed(Index.pip, [b, a, a])
    assert one == other and one.key("x") == other.key("x") != one.key("y")
    assert needed(Index.npm, [a]).key("x") != needed(Index.pip, [a]).key("x")
    assert needed(Index.pip, None).lines == ()


def test_requirements_as_one_text() -> None:
    assert written(Index.pip, "requests==2.0") == {"name": "requests", "version": "2.0"}
    assert written(Index.pip, " requests >=2,<3 ") == {"name": "requests", "version": ">=2,<3"}
    assert written(Index.npm, "@a/b@^1") == {"name": "@a/b", "version": "^1"}
    assert written(Index.npm, "@a/b") == {"name": "@a/b", "version": None}
    with pytest.raises(InvalidInput):
        written(Index.pip, "a b")
