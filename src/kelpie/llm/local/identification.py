"""Identification of a local model server by its own answers, with GET requests alone.

The address never decides: any of these servers may listen on any port, and another program may as well.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from kelpie.llm.local.probing import Asker


def is_ollama(text: str) -> bool:
    """Checks the text at `/`."""
    return "Ollama is running" in text


def is_lmstudio(listed: Mapping[str, Any] | None) -> bool:
    """Checks the answer at `/api/v0/models`. No other server has that path; each of its models has a type."""
    if listed is None or not isinstance(listed.get("data"), list):
        return False
    return all(isinstance(entry.get("id"), str) and "type" in entry for entry in entries(listed, "data"))


def is_llamacpp(props: Mapping[str, Any] | None) -> bool:
    """Checks the answer at `/props`."""
    return props is not None and isinstance(props.get("default_generation_settings"), dict)


def is_vllm(listed: Mapping[str, Any] | None) -> bool:
    """Checks the answer at `/v1/models`."""
    return any(entry.get("owned_by") == "vllm" or "max_model_len" in entry for entry in named(listed))


def is_localai(system: Mapping[str, Any] | None) -> bool:
    """Checks the answer at `/system`."""
    return system is not None and "backends" in system


def named(data: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The models of a listing in OpenAI's form."""
    return [entry for entry in entries(data, "data") if isinstance(entry.get("id"), str) and entry["id"]]


def entries(data: Mapping[str, Any] | None, field: str) -> list[dict[str, Any]]:
    """The objects in a list of an answer; empty when it has none."""
    listed = (data or {}).get(field)
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


async def _ollama(asker: Asker) -> bool:
    return is_ollama(await asker.text(""))


async def _lmstudio(asker: Asker) -> bool:
    return is_lmstudio(await asker.json("api/v0/models"))


async def _llamacpp(asker: Asker) -> bool:
    return is_llamacpp(await asker.json("props"))


async def _vllm(asker: Asker) -> bool:
    return is_vllm(await asker.json("v1/models"))


async def _localai(asker: Asker) -> bool:
    return is_localai(await asker.json("system"))


_CHECKS: Mapping[str, Callable[[Asker], Awaitable[bool]]] = {
    "ollama": _ollama,
    "lmstudio": _lmstudio,
    "llamacpp": _llamacpp,
    "vllm": _vllm,
    "localai": _localai,
}
KINDS: Sequence[str] = tuple(_CHECKS)


async def identify(asker: Asker, expected: Iterable[str] = ()) -> str | None:
    """The kind of server that answers, trying the expected kinds first; None for any other program.

    Raises ModelError when nothing answers.
    """
    for kind in dict.fromkeys((*expected, *KINDS)):
        if await _CHECKS[kind](asker):
            return kind
    return None
