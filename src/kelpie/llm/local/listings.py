"""Listings of each kind of local server: its kind and its models. One function per kind: None for another server.

Facts come from the server; a model's name decides only where the server gives none.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from kelpie.llm.catalog.known_models import chats, embeds, info
from kelpie.llm.local.identification import entries, is_llamacpp, is_lmstudio, is_localai, is_ollama, is_vllm, named
from kelpie.llm.local.probing import Asker, ProbedServer
from kelpie.llm.provider.interface import EmbeddingInfo, HiddenModel, ModelInfo

SHOWS_AT_ONCE = 4
OLLAMA_WINDOW_UNKNOWN = 4096  # Ollama's own default
BY_NAME = "its name shows that it is not a chat model"
EMBEDS = "it is an embedding model"

_PART = re.compile(r"-\d{5}-of-\d{5}$")  # of a model file in several pieces
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
    if not is_ollama(await asker.text("")):
        return None
    tags = await asker.json("api/tags")
    names = [entry["name"] for entry in entries(tags, "models") if isinstance(entry.get("name"), str)]
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
        elif _ollama_embeds(name, details):
            hidden.append(HiddenModel(name, EMBEDS, embeds=True))
            size = _of_architecture(details, "embedding_length")
            embeddings.append(_embedding(asker, "ollama", name, size or 0))
        elif reason := _no_ollama_chat(name, details):
            hidden.append(HiddenModel(name, reason))
        else:
            model, is_fixed = _ollama_model(asker, name, details)
            models.append(model)
            fixed |= {name} if is_fixed else set()
    return ProbedServer("ollama", _by_name(models), tuple(hidden), tuple(embeddings), frozenset(fixed))


def _ollama_embeds(name: str, details: Mapping[str, Any]) -> bool:
    able = details.get("capabilities")
    return "embedding" in able and "completion" not in able if isinstance(able, list) else embeds(name)


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


def _of_architecture(details: Mapping[str, Any], field: str) -> int | None:
    facts = details.get("model_info")
    if not isinstance(facts, Mapping):
        return None
    return _positive(facts.get(f"{facts.get('general.architecture')}.{field}"))


# --- the others --------------------------------------------------------------------------------------------------


async def lmstudio(asker: Asker) -> ProbedServer | None:
    listed = await asker.json("api/v0/models")
    if not is_lmstudio(listed):
        return None
    models: list[ModelInfo] = []
    hidden: list[HiddenModel] = []
    embeddings: list[EmbeddingInfo] = []
    for entry in named(listed):
        if entry["type"] == "embeddings":
            hidden.append(HiddenModel(entry["id"], EMBEDS, embeds=True))
            embeddings.append(_embedding(asker, "lmstudio", entry["id"]))
            continue
        if entry["type"] not in ("llm", "vlm"):
            hidden.append(HiddenModel(entry["id"], f"it is not a chat model: LM Studio lists it as '{entry['type']}'"))
            continue
        loaded = _positive(entry.get("loaded_context_length")) if entry.get("state") == "loaded" else None
        model = _model(asker, "lmstudio", entry["id"], loaded or _positive(entry.get("max_context_length")))
        able = entry.get("capabilities")
        tools = "tool_use" in able if isinstance(able, list) else True
        models.append(replace(model, tools=tools, vision=entry["type"] == "vlm", structured_output=True))
    return ProbedServer("lmstudio", _by_name(models), tuple(hidden), tuple(embeddings))


async def llamacpp(asker: Asker) -> ProbedServer | None:
    props = await asker.json("props")
    if props is None or not is_llamacpp(props):
        return None
    window = _positive(props["default_generation_settings"].get("n_ctx"))
    template = str(props.get("chat_template") or "")
    caps, modalities = props.get("chat_template_caps"), props.get("modalities")
    tools = caps.get("supports_tools", True) if isinstance(caps, dict) else "tools" in template
    vision = bool(modalities.get("vision")) if isinstance(modalities, dict) else False
    models: list[ModelInfo] = []
    hidden: list[HiddenModel] = []
    embeddings: list[EmbeddingInfo] = []
    listed = named(await asker.json("v1/models"))
    names = _names(entry["id"] for entry in listed)
    for entry in listed:
        meta: Mapping[str, Any] = entry["meta"] if isinstance(entry.get("meta"), dict) else {}
        name = names[entry["id"]]
        if embeds(name):
            hidden.append(HiddenModel(name, EMBEDS, embeds=True))
            embeddings.append(_embedding(asker, "llamacpp", name, _positive(meta.get("n_embd")) or 0))
            continue
        model = _model(asker, "llamacpp", name, window or _positive(meta.get("n_ctx_train")))
        able = {"tools": bool(tools), "vision": vision, "reasoning": "<think>" in template}
        models.append(replace(model, structured_output=True, **able))
    return ProbedServer("llamacpp", _by_name(models), tuple(hidden), tuple(embeddings), ids=_ids(names))


async def vllm(asker: Asker) -> ProbedServer | None:
    answer = await asker.json("v1/models")
    if not is_vllm(answer):
        return None
    listed = named(answer)
    windows = {entry["id"]: _positive(entry.get("max_model_len")) for entry in listed}
    names = _names(windows)
    models: list[ModelInfo] = []
    for entry in listed:
        if not chats(names[entry["id"]]):
            continue
        window = windows[entry["id"]] or windows.get(str(entry.get("parent")))  # an adapter has its model's
        models.append(replace(_model(asker, "vllm", names[entry["id"]], window), structured_output=True))
    hidden = _hidden(name for name in names.values() if not chats(name))
    embeddings = tuple(_embedding(asker, "vllm", name) for name in names.values() if embeds(name))
    return ProbedServer("vllm", _by_name(models), hidden, embeddings, ids=_ids(names))


async def localai(asker: Asker) -> ProbedServer | None:
    system = await asker.json("system")
    if not is_localai(system):
        return None
    models: list[ModelInfo] = []
    hidden: list[HiddenModel] = []
    embeddings: list[EmbeddingInfo] = []
    for entry in named(await asker.json("v1/models")):
        name = entry["id"]
        config = await asker.json(f"api/models/config-json/{quote(name, safe='')}") or {}
        if config.get("embeddings") or embeds(name):
            hidden.append(HiddenModel(name, EMBEDS, embeds=True))
            embeddings.append(_embedding(asker, "localai", name))
            continue
        if not chats(name):
            hidden.append(HiddenModel(name, BY_NAME))
            continue
        model = _model(asker, "localai", name, _positive(config.get("context_size")))
        models.append(replace(model, vision=bool(config.get("mmproj")), structured_output=True))
    return ProbedServer("localai", _by_name(models), tuple(hidden), tuple(embeddings))


async def compatible(asker: Asker) -> ProbedServer | None:
    listed = await asker.json("v1/models")
    if listed is None or not isinstance(listed.get("data"), list):
        return None
    found = named(listed)
    models = (_declared(asker, entry["id"], entry) for entry in found if chats(entry["id"]))
    hidden = _hidden(entry["id"] for entry in found if not chats(entry["id"]))
    embeddings = tuple(_embedding(asker, "openai", entry["id"]) for entry in found if embeds(entry["id"]))
    return ProbedServer("openai", _by_name(models), hidden, embeddings)


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
    return without_defaults(info(server, asker.endpoint, name, declared))


def _declared(asker: Asker, name: str, entry: Mapping[str, Any]) -> ModelInfo:
    return without_defaults(info("openai", asker.endpoint, name, entry))


def without_defaults(model: ModelInfo) -> ModelInfo:
    """The model without defaults of ours: the server has its own for the temperature and the length of a reply."""
    return replace(model, max_tokens=None, temperature=None)


def _embedding(asker: Asker, server: str, name: str, dimensions: int = 0) -> EmbeddingInfo:
    at = asker.endpoint
    return EmbeddingInfo(f"{at.provider}/{name}", name, at.provider, server, dimensions, at.shown)


def _hidden(names: Iterable[str]) -> tuple[HiddenModel, ...]:
    return tuple(HiddenModel(name, EMBEDS if embeds(name) else BY_NAME, embeds(name)) for name in names)


def _names(ids: Iterable[str]) -> dict[str, str]:
    """The name of each model by its id: a path on the server's machine becomes the name of its file.

    A path is no name: it shows the directories of that machine and changes when the file is moved.
    """
    found: dict[str, str] = {}
    for one in ids:
        is_path = one.startswith(("/", "./", "../", "~")) or one.endswith(".gguf") or one[1:3] == ":\\"
        last = re.split(r"[/\\]", one.rstrip("/"))[-1] if is_path else one
        name = _PART.sub("", last.removesuffix(".gguf")) if is_path else one
        found[one] = one if not name or name in found.values() else name
    return found


def _ids(names: Mapping[str, str]) -> dict[str, str]:
    return {name: one for one, name in names.items() if name != one}


def _by_name(models: Iterable[ModelInfo]) -> tuple[ModelInfo, ...]:
    return tuple(sorted(models, key=lambda model: model.name))


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
