"""Any source gives a schema that can be stored and sent, or a sentence; and none of them costs more than a moment."""

import ast
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kelpie.core.errors import InvalidInput
from kelpie.tools.schema.python_schema import schema_from_source
from kelpie.tools.schema.typescript_schema import schema_from_typescript

ARGS = '    """D.\n\n    Args:\n        p: p\n    """\n'
SCHEMA_BYTES_MAX = 2_000_000
WORDS = [
    *("def f(", "p: ", "x", ", ", ") -> int:\n", ARGS, "class A(B, Enum):\n    ", "a = 1\n", "a: int = Field(1)\n"),
    *("class B(BaseModel):\n    ", "Optional[", "]", "list[", "A", "B", " | None", "Literal['a', 1]", '"', "'", "\\"),
    *(
        "@dataclass\n",
        "if x:\n    ",
        "try:\n",
        "\x00",
        "\ud800",
        "é",
        "(",
        "{",
        "}",
        "interface I {",
        "export function ",
    ),
    *("/** d */", "=> ", "...", "async ", "Annotated[int, Field(description='d')]", "lambda: 0", "\n"),
]


def outcome(code: str, read: Any) -> Any:
    try:
        found = read(code)
    except InvalidInput as refused:
        return orjson.dumps(str(refused))
    assert len(orjson.dumps(found)) < SCHEMA_BYTES_MAX
    return found


@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join) | st.text(max_size=200))
@settings(deadline=None, max_examples=200)
def test_nonsense_is_refused(code: str) -> None:
    outcome(code, schema_from_source)
    outcome(code, schema_from_typescript)


def tool(annotation: str, before: str = "") -> str:
    return f"{before}\ndef f(p: {annotation}):\n{ARGS}"


DEEP = "list[" * 90 + "int" + "]" * 90
MANY_BASES = ", ".join(["C"] * 500)
LONG_TEXT = "t" * 100_000


@pytest.mark.parametrize(
    "code",
    [
        "if x:\n    pass\n" + "elif x:\n    pass\n" * 1200 + tool("int"),
        tool(DEEP),
        tool("B", f"A = {DEEP}\nB = {DEEP.replace('int', 'A')}"),
        tool("C", f"class C(BaseModel, {MANY_BASES}):\n    x: int"),
        tool(
            "C0",
            "\n".join(f"class C{n}(C{n + 1}, C{n + 1}): pass" for n in range(300)) + "\nclass C300(BaseModel): pass",
        ),
        tool(f"tuple[{', '.join(['C'] * 4000)}]", f'class C(BaseModel):\n    """{LONG_TEXT}"""\n    x: int'),
        tool(f"tuple[{', '.join(['C'] * 4000)}]", f"C = Literal['{LONG_TEXT}']"),
        tool(f"tuple[{', '.join(['C'] * 4000)}]", f"@dataclass\nclass C:\n    x: str = '{LONG_TEXT}'"),
        tool(f"Literal[{', '.join(map(str, range(20_000)))}]"),
        'def f(p: int):\n    """D.\n\n    Args:\n        a' + " " * 200_000 + 'b\n    """\n',
        'def f(p: int):\n    """D.\n\n    :param' + " " * 200_000 + 'b\n    """\n',
        'def f(p: int):\n    """D.\n\n    Parameters\n    ----------\n    a' + " ," * 100_000 + '!\n    """\n',
        'def f(p: int):\n    """D.\n\n    Args:\n        a (' + "()" * 100_000 + '\n    """\n',
        tool("'" * 3 + "int" + "'" * 3),
        tool("-" * 5000 + "1"),
        tool("lambda: " * 500 + "1"),
        tool("A", "A = B\nB = A"),
        tool("x" + ".y" * 20_000),
    ],
    ids=range(18),
)
def test_hostile_sources(code: str) -> None:
    outcome(code, schema_from_source)


@pytest.mark.parametrize(
    "code",
    [
        f"interface C {{ /** {LONG_TEXT} */ x: string }} function f(p: [{', '.join(['C'] * 4000)}]) {{}}",
        f"type C = '{LONG_TEXT}'; function f(p: [{', '.join(['C'] * 4000)}]) {{}}",
        "function f(" + "a: string, " * 20_000 + ") {}",
        "/** @param" + " " * 200_000 + "! */ function f(a: string) {}",
        "/**" + " * @param {{{{ a\n" * 10_000 + "*/ function f(a: string) {}",
        "function " * 25_000,
        "const x = (" * 20_000,
    ],
    ids=range(7),
)
def test_hostile_typescript(code: str) -> None:
    outcome(code, schema_from_typescript)


def test_reading_never_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[int] = []
    real = compile

    def spy(source: Any, filename: Any, mode: Any, given: int = 0, *rest: Any, **named: Any) -> Any:
        flags.append(named.get("flags", given))
        return real(source, filename, mode, given, *rest, **named)

    monkeypatch.setattr("builtins.compile", spy)
    schema_from_source(tool("'list[int]'"))
    assert flags and all(flag & ast.PyCF_ONLY_AST for flag in flags)
