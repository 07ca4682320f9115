"""Values that can be read from the syntax tree: what JSON can hold and nothing that would have to be computed."""

import ast
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
INTEGER_MAX = 2**53  # beyond it, not every reader of JSON keeps a whole number as it is


class NotConstant(ValueError):
    """The value is not written down in the source, or JSON cannot hold it."""


def constant(node: ast.expr) -> Any:
    """The JSON value of an expression. Raises NotConstant."""
    try:
        return _plain(cast("Any", ast.literal_eval(node)))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise NotConstant from error


def is_text(value: str) -> bool:
    """True if every reader can hold the text: no half characters and no NUL."""
    return _UNSTORABLE.search(value) is None


def _plain(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case str() if is_text(value):
            return value
        case int() if abs(value) <= INTEGER_MAX:
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_plain(item) for item in cast("Sequence[Any]", value)]
        case dict():
            given = cast("Mapping[Any, Any]", value)
            if not all(isinstance(key, str) and is_text(key) for key in given):
                raise NotConstant
            return {key: _plain(item) for key, item in given.items()}
        case _:
            raise NotConstant
