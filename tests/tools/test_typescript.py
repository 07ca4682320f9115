"""The schema of a TypeScript tool, from its signature and its JSDoc."""

from typing import Any

import pytest

from kelpie.core.errors import InvalidInput
from kelpie.tools.schema.source import SOURCE_CHARS_MAX
from kelpie.tools.schema.typescript_schema import schema_from_typescript

STRING, NUMBER = {"type": "string"}, {"type": "number"}
SOURCE = """
import { x } from "y"; // it's a comment
interface Item { /** the name */ name: string; qty?: number; readonly tags: string[] }
type Mode = "fast" | "slow";
/** Not this one. */
export function helper(a: number) { return a }
/**
 * Adds things.
 * More text.
 *
 * @param {Item[]} items - the items
 *   and more
 * @param mode how
 * @returns nothing
 */
export async function addItems(items: Item[], mode: Mode = "fast", at?: Date, n: number | null): Promise<string> {
  const text = `it's ${x}`; function inner(z: Foo) {}
  return text;
}
function last(b: string) {}
"""


def test_a_signature() -> None:
    item = {
        "type": "object",
        "properties": {
            "name": STRING | {"description": "the name"},
            "qty": NUMBER,
            "tags": {"type": "array", "items": STRING},
        },
        "required": ["name", "tags"],
    }
    assert schema_from_typescript(SOURCE) == {
        "name": "addItems",
        "description": "Adds things.\nMore text.",
        "parameters": {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": item, "description": "the items\nand more"},
                "mode": STRING | {"enum": ["fast", "slow"], "description": "how"},
                "at": STRING | {"format": "date-time"},
                "n": {"anyOf": [NUMBER, {"type": "null"}]},
            },
            "required": ["items", "n"],
        },
    }


@pytest.mark.parametrize(
    ("declared", "schema", "required"),
    [
        ("p: string", STRING, True),
        ("p?: string", STRING, False),
        ("p: string | undefined", STRING, False),
        ("p = {a: [1, (2)]}", {}, False),
        ("p", {}, True),
        ("p: Array<number>", {"type": "array", "items": NUMBER}, True),
        ("p: (string | number)[]", {"type": "array", "items": {"anyOf": [STRING, NUMBER]}}, True),
        ("p: Record<string, boolean>", {"type": "object", "additionalProperties": {"type": "boolean"}}, True),
        ("p: 1 | 2 | 'x'", {"anyOf": [{"type": "integer", "enum": [1, 2]}, STRING | {"enum": ["x"]}]}, True),
        ("p: -0.5", NUMBER | {"enum": [-0.5]}, True),
        ("p: Set<string>", {"type": "array", "items": STRING, "uniqueItems": True}, True),
        (
            "p: { [key: string]: any }",
            {"type": "object", "properties": {}, "required": [], "additionalProperties": True},
            True,
        ),
    ],
)
def test_types(declared: str, schema: dict[str, Any], required: bool) -> None:
    for source in (f"function f({declared}) {{}}", f"export const f = async ({declared}): Promise<void> => {{}}"):
        found = schema_from_typescript(source)
        assert found["parameters"]["properties"] == {"p": schema}, source
        assert found["parameters"]["required"] == (["p"] if required else [])
        assert (found["name"], found["description"]) == ("f", "")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("const x = 1;", "contains no top-level function"),
        ("export function f({a, b}: {a: string}) {}", "instead of a parameter name"),
        ("export function f(a: Unknown) {}", "'Unknown'"),
        ("export function f(a: A & B) {}", "signature of f"),
        ("export function f(a: (x: number) => void) {}", "signature of f"),
        ("export function f(a: string", "unexpected end of the source"),
        ("type A = A[]; export function f(a: A) {}", "too deeply"),
        ("export function f(a: " + "[" * 100_000, "too deeply"),
        (
            "".join(f"type T{n} = [T{n + 1}, T{n + 1}, T{n + 1}];" for n in range(10))
            + "type T10 = string; function f(a: T0) {}",
            "more than",
        ),
        ("/* " * 80_000, "contains no top-level function"),
        ("\\'" * 120_000, "contains no top-level function"),
        ("x" * (SOURCE_CHARS_MAX + 1), "the limit is"),
        ("function f() {} // \0", "NUL"),
    ],
)
def test_what_cannot_be_read_is_told(source: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        schema_from_typescript(source)
