"""Listings of each kind of local server: its kind and its models. One function per kind: None for another server.

Facts come from the server; a model's name decides only where the server gives none.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from kelpie.llm.catalog.known_models import chats, info
from kelpie.llm.local.probing import Asker, ProbedServer
from kelpie.llm.provider.interface import EmbeddingInfo, HiddenModel, ModelInfo

SHOWS_AT_ONCE = 4
OLLAMA_WINDOW_UNKNOWN = 4096  # Ollama's own default
BY_NAME = "its name shows that it is not a chat model"

_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d+)\s*$", re.MULTILINE)


async def find(asker: Asker, expected: str) -> ProbedServer:
    """The server at this address and all its models, trying the expected kind first. Raises ModelError."""
    kinds = [expected, *(kind for kind in DETECTORS if kind != expected)]
    for kind in kinds:
        if found := await DETECTORS[kind](asker):
            return found
    raise asker.unknown()


# --- Ollama ------------------------------------------------------------------------------------------------------


async def ollama(asker: Asker) -> ProbedServer | None:
    if "Ollama is running" not in await asker.text(""):
        return None
    tags = await asker.json("api/tags")
    names = [entry["name"] for entry in _entries(tags, "models") if isinstance(entry.get("name"), str)]
    places = asyncio.Semaphore(SHOWS_AT_ONCE)

    async def show(name: str) -> dict[str, Any] | None:
        async with places:
            return await asker.json("api/show", {"model": name})

    shown = await asyncio.gather(*(show(name) for name in names))
    models: list[ModelInfo] = []
    hidden: list[HiddenModel] = []
    embeddings: list[EmbeddingInfo] = []
    fixed: set[str] = set()
    for name, details in zip(names, shown, strict=True):
        if details is None:
            hidden.append(HiddenModel(name, "Ollama does not report its details; pull it again"))
        elif reason := _no_ollama_chat(name, details):
            hidden.append(HiddenModel(name, reason))
            embeddings += _ollama_embedding(asker, name, details)
        else:
            model, is_fixed = _ollama_model(asker, name, details)
            models.append(model)
            fixed |= {name} if is_fixed else set()
    return ProbedServer("ollama", _by_name(models), tuple(hidden), tuple(embeddings), frozenset(fixed))


def _no_ollama_chat(name: str, details: Mapping[str, Any]) -> str | None:
    able = details.get("capabilities")
    if isinstance(able, list):
        return (
            None if "completion" in able else f"it is not a chat model: Ollama lists it for {', '.join(map(str, able))}"
        )
    return None if chats(name) else BY_NAME


def _ollama_model(asker: Asker, name: str, details: Mapping[str, Any]) -> tuple[ModelInfo, bool]:
    able = details.get("capabilities")
    if not isinstance(able, list):  # an older one: its template shows whether it supports tools
        able = ["tools"] if ".Tools" in str(details.get("template")) else []
        able += ["vision"] if details.get("projector_info") else []
    set_by_maker = _NUM_CTX.search(str(details.get("parameters") or ""))
    window = int(set_by_maker[1]) if set_by_maker else _of_architecture(details, "context_length")
    model = _model(asker, "ollama", name, window or OLLAMA_WINDOW_UNKNOWN)
    return (
        replace(
            model,
            tools="tools" in able,
            vision="vision" in able,
            reasoning="thinking" in able,
            structured_output=True,
        ),
        set_by_maker is not None,
    )


def _ollama_embedding(asker: Asker, name: str, details: Mapping[str, Any]) -> list[EmbeddingInfo]:
    size = _of_architecture(details, "embedding_length")
    if "embedding" not in (details.get("capabilities") or ()) or not size:
        return []
    at = asker.endpoint
    return [EmbeddingInfo(f"{at.provider}/{name}", name, at.provider, "ollama", size, at.shown)]


def _of_architecture(details: Mapping[str, Any], field: str) -> int | None:
    facts = details.get("model_info")
    if not isinstance(facts, Mapping):
        return None
    return _positive(facts.get(f"{facts.get('general.architecture')}.{field}"))


# --- the others --------------------------------------------------------------------------------------------------


async def lmstudio(asker: Asker) -> ProbedServer | None:
    listed = await asker.json("api/v0/models")
    entries = [entry for entry in _entries(listed, "data") if isinstance(entry.get("id"), str) and "type" in entry]
    if not entries:
        return None
    models: list[ModelInfo] = []
    hidden: list[HiddenModel] = []
    for entry in entries:
        if entry["type"] not in ("llm", "vlm"):
            hidden.append(HiddenModel(entry["id"], f"it is not a chat model: LM Studio lists it as '{entry['type']}'"))
            continue
        loaded = _positive(entry.get("loaded_context_length")) if entry.get("state") == "loaded" else None
        model = _model(asker, "lmstudio", entry["id"], loaded or _positive(entry.get("max_context_length")))
        able = entry.get("capabilities")
        tools = "tool_use" in able if isinstance(able, list) else True
        models.append(replace(model, tools=tools, vision=entry["type"] == "vlm", structured_output=True))
    return ProbedServer("lmstudio", _by_name(models), tuple(hidden))


async def llamacpp(asker: Asker) -> ProbedServer | None:
    props = await asker.json("props")
    if props is None or not isinstance(props.get("default_generation_settings"), dict):
        return None
    window = _positive(props["default_generation_settings"].get("n_ctx"))
    template = str(props.get("chat_template") or "")
    caps, modalities = props.get("chat_template_caps"), props.get("modalities")
    tools = caps.get("supports_tools", True) if isinstance(caps, dict) else "tools" in template
    vision = bool(modalities.get("vision")) if isinstance(modalities, dict) else False
    models: list[ModelInfo] = []
    for entry in _named(await asker.json("v1/models")):
        meta = entry.get("meta")
        trained = _positive(meta.get("n_ctx_train")) if isinstance(meta, dict) else None
        model = _model(asker, "llamacpp", entry["id"], window or trained)
        able = {"tools": bool(tools), "vision": vision, "reasoning": "<think>" in template}
        models.append(replace(model, structured_output=True, **able))
    return ProbedServer("llamacpp", _by_name(models))


async def vllm(asker: Asker) -> ProbedServer | None:
    entries = _named(await asker.json("v1/models"))
    if not any(entry.get("owned_by") == "vllm" or "max_model_len" in entry for entry in entries):
        return None
    windows = {entry["id"]: _positive(entry.get("max_model_len")) for entry in entries}
    models: list[ModelInfo] = []
    hidden: list[HiddenModel] = []
    for entry in entries:
        if not chats(entry["id"]):
            hidden.append(HiddenModel(entry["id"], BY_NAME))
            continue
        window = windows[entry["id"]] or windows.get(str(entry.get("parent")))  # an adapter has its model's
        models.append(replace(_model(asker, "vllm", entry["id"], window), structured_output=True))
    return ProbedServer("vllm", _by_name(models), tuple(hidden))


async def localai(asker: Asker) -> ProbedServer | None:
    system = await asker.json("system")
    if system is None or "backends" not in system:
        return None
    models: list[ModelInfo] = []
    hidden: list[HiddenModel] = []
    for entry in _named(await asker.json("v1/models")):
        name = entry["id"]
        config = await asker.json(f"api/models/config-json/{quote(name, safe='')}") or {}
        if config.get("embeddings") or not chats(name):
            hidden.append(HiddenModel(name, "it is an embedding model" if config.get("embeddings") else BY_NAME))
            continue
        model = _model(asker, "localai", name, _positive(config.get("context_size")))
        models.append(replace(model, vision=bool(config.get("mmproj")), structured_output=True))
    return ProbedServer("localai", _by_name(models), tuple(hidden))


async def compatible(asker: Asker) -> ProbedServer | None:
    listed = await asker.json("v1/models")
    if listed is None or not isinstance(listed.get("data"), list):
        return None
    at = asker.endpoint
    entries = _named(listed)
    hidden = tuple(HiddenModel(entry["id"], BY_NAME) for entry in entries if not chats(entry["id"]))
    return ProbedServer("openai", _by_name(info("openai", at, e["id"], e) for e in entries if chats(e["id"])), hidden)


DETECTORS: dict[str, Callable[[Asker], Awaitable[ProbedServer | None]]] = {
    "ollama": ollama,
    "lmstudio": lmstudio,
    "llamacpp": llamacpp,
    "vllm": vllm,
    "localai": localai,
    "openai": compatible,
}


def _model(asker: Asker, server: str, name: str, window: int | None) -> ModelInfo:
    declared = {"context_length": window} if window else {}
    return info(server, asker.endpoint, name, declared)


def _by_name(models: Iterable[ModelInfo]) -> tuple[ModelInfo, ...]:
    return tuple(sorted(models, key=lambda model: model.name))


def _named(data: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [entry for entry in _entries(data, "data") if isinstance(entry.get("id"), str) and entry["id"]]


def _entries(data: Mapping[str, Any] | None, field: str) -> list[dict[str, Any]]:
    listed = (data or {}).get(field)
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
