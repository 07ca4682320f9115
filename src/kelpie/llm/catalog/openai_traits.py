"""Kinds of OpenAI models, by their names: reasoning ones take other parameters than the rest."""

import re
from functools import lru_cache

_O_SERIES = re.compile(r"o[1-9](-|$)")
_REASONING = re.compile(r"o[1-9](-|$)|gpt-[5-9](?!.*-chat)")
_OWN = ("openai", "azure")


@lru_cache(maxsize=256)
def reasons(model: str) -> bool:
    """Checks whether OpenAI treats the model as a reasoning one."""
    return _REASONING.match(model.rpartition("/")[2]) is not None


def is_o_series(model: str) -> bool:
    """Checks whether the model refuses `parallel_tool_calls`, whatever its value."""
    return _O_SERIES.match(model.rpartition("/")[2]) is not None


@lru_cache(maxsize=256)
def handle_reasons(handle: str) -> bool:
    """Checks whether a handle names a reasoning model of OpenAI: it always reasons, and no setting stops it."""
    provider, _, model = handle.partition("/")
    return provider in _OWN and reasons(model)
