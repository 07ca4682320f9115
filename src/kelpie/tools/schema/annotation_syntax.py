"""Syntax of annotations: unions as chains, arguments in brackets, types between quotes."""

import ast

_SHOWN_CHARS_MAX = 120


class UnsupportedAnnotation(ValueError):
    """The annotation has no JSON schema; the text is the annotation."""

    def __init__(self, node: ast.expr | str) -> None:
        text = node if isinstance(node, str) else ast.unparse(node)
        super().__init__(text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…")


def alternatives(node: ast.expr) -> list[ast.expr]:
    """The parts of `a | b | c`, which is a chain that may be long."""
    parts: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


def arguments_in(node: ast.expr) -> list[ast.expr]:
    """The expressions between the brackets; `()` counts as one."""
    return list(node.elts) if isinstance(node, ast.Tuple) and node.elts else [node]


def quoted(text: str) -> ast.expr:
    """The annotation between quotes. Raises UnsupportedAnnotation."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnsupportedAnnotation(repr(text)) from None
