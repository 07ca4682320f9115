"""Answers are plain dicts, built by pure functions and dumped once; no model validates them on the way out."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response


class JsonAnswer(Response):
    """A JSON body."""

    media_type = "application/json"

    def __init__(self, data: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(orjson.dumps(data), status_code, headers)
