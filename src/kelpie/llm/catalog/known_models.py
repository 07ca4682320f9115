"""Known facts about models by their names, because providers' listings do not contain them.

Facts only: sizes and abilities as their makers publish them. A server's own declarations take precedence over this
table, and an unknown model counts as one with few abilities that can call tools.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import ModelInfo

MAX_TOKENS_DEFAULT = 16_384

EMBEDDING_DIMENSIONS = {
    "text-embedding-3-large": 3072,
    "text-embedding-3-small": 1536,
    "text-embedding-ada-002": 1536,
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Abilities of a model. `context_window` limits the input; `longest_reply` is the model's own limit on the
    output."""

    context_window: int | None = None
    longest_reply: int | None = None
    tools: bool = True
    vision: bool = False
    structured_output: bool = False
    reasoning: bool = False


def _facts(window: int | None, reply: int | None, abilities: str) -> Facts:
    has = abilities.split()
    return Facts(window, reply, "tools" in has, "vision" in has, "schema" in has, "reasons" in has)


# By prefix of the name; the longest matching prefix counts.
_HOSTED = {
    "gpt-": _facts(128_000, None, "tools"),
    "gpt-3.5-turbo": _facts(16_385, 4_096, "tools"),
    "gpt-35-turbo": _facts(16_385, 4_096, "tools"),
    "gpt-4": _facts(8_192, 8_192, "tools"),
    "gpt-4-32k": _facts(32_768, 8_192, "tools"),
    "gpt-4-0125": _facts(128_000, 4_096, "tools"),
    "gpt-4-1106": _facts(128_000, 4_096, "tools"),
    "gpt-4-turbo": _facts(128_000, 4_096, "tools vision"),
    "gpt-4-vision": _facts(128_000, 4_096, "vision"),
    "gpt-4o": _facts(128_000, 16_384, "tools vision schema"),
    "gpt-4o-2024-05-13": _facts(128_000, 4_096, "tools vision"),
    "gpt-4.1": _facts(1_047_576, 32_768, "tools vision schema"),
    "gpt-4.5": _facts(128_000, 16_384, "tools vision schema"),
    "gpt-5": _facts(272_000, 128_000, "tools vision schema reasons"),
    "gpt-5-chat": _facts(128_000, 16_384, "tools vision schema"),
    "gpt-5.4": _facts(922_000, 128_000, "tools vision schema reasons"),
    "gpt-5.4-mini": _facts(272_000, 128_000, "tools vision schema reasons"),
    "gpt-5.4-nano": _facts(272_000, 128_000, "tools vision schema reasons"),
    "gpt-5.5": _facts(922_000, 128_000, "tools vision schema reasons"),
    "gpt-5.6": _facts(922_000, 128_000, "tools vision schema reasons"),
    "gpt-oss": _facts(131_072, None, "tools schema reasons"),
    "chatgpt-4o": _facts(128_000, 16_384, "vision"),
    "o1": _facts(200_000, 100_000, "tools vision schema reasons"),
    "o1-mini": _facts(128_000, 65_536, "reasons"),
    "o1-preview": _facts(128_000, 32_768, "reasons"),
    "o3": _facts(200_000, 100_000, "tools vision schema reasons"),
    "o3-mini": _facts(200_000, 100_000, "tools schema reasons"),
    "o4-mini": _facts(200_000, 100_000, "tools vision schema reasons"),
    "claude-": _facts(200_000, None, "tools vision schema reasons"),
    "claude-2": _facts(100_000, 4_096, ""),
    "claude-3-": _facts(200_000, 4_096, "tools vision"),
    "claude-3-5": _facts(200_000, 8_192, "tools vision"),
    "claude-3-7": _facts(200_000, 64_000, "tools vision reasons"),
    "claude-sonnet-4": _facts(200_000, 64_000, "tools vision reasons"),
    "claude-sonnet-4-5": _facts(200_000, 64_000, "tools vision schema reasons"),
    "claude-sonnet-4-6": _facts(1_000_000, 128_000, "tools vision schema reasons"),
    "claude-sonnet-5": _facts(1_000_000, 128_000, "tools vision schema reasons"),
    "claude-opus-4": _facts(200_000, 32_000, "tools vision reasons"),
    "claude-opus-4-1": _facts(200_000, 32_000, "tools vision schema reasons"),
    "claude-opus-4-5": _facts(200_000, 64_000, "tools vision schema reasons"),
    "claude-opus-4-6": _facts(1_000_000, 128_000, "tools vision schema reasons"),
    "claude-opus-4-7": _facts(1_000_000, 128_000, "tools vision schema reasons"),
    "claude-opus-4-8": _facts(1_000_000, 128_000, "tools vision schema reasons"),
    "claude-opus-5": _facts(1_000_000, 128_000, "tools vision schema reasons"),
    "claude-haiku-4-5": _facts(200_000, 64_000, "tools vision schema reasons"),
    "claude-haiku-5": _facts(1_000_000, 128_000, "tools vision schema reasons"),
    "claude-fable": _facts(1_000_000, 128_000, "tools vision schema reasons"),
    "claude-mythos": _facts(1_000_000, 128_000, "tools vision schema reasons"),
    "gemini-": _facts(1_048_576, 8_192, "tools vision schema"),
    "gemini-2.5": _facts(1_048_576, 65_536, "tools vision schema reasons"),
    "gemini-3": _facts(1_048_576, 65_536, "tools vision schema reasons"),
    "grok-3": _facts(131_072, None, "tools schema"),
    "grok-4": _facts(256_000, None, "tools vision schema reasons"),
    "deepseek-chat": _facts(128_000, 8_192, "tools"),
    "deepseek-reasoner": _facts(128_000, None, "tools reasons"),
}

# Open models by family. Their server decides the context window, so it is not in the table.
_OPEN = (
    (re.compile(r"llava|bakllava|moondream|minicpm-v|gemma-?3(?!n)|gemma2?-?vision"), _facts(None, None, "vision")),
    (re.compile(r"gemma|^phi-?[123]|llama-?2|codellama|tinyllama|vicuna|orca|starcoder"), _facts(None, None, "")),
    (
        re.compile(r"(llama-?3\.2.*vision|llama-?4|qwen.*-?vl|pixtral|mistral-small-?3\.[12])"),
        _facts(None, None, "tools vision"),
    ),
    (
        re.compile(r"deepseek-?r1|qwq|qwen-?3(?!.*(instruct|coder))|magistral|phi-?4.*reasoning"),
        _facts(None, None, "tools reasons"),
    ),
)

UNKNOWN = Facts()
_DECLARED = ("max_input_tokens", "max_model_len", "context_length", "context_window", "max_context_length")

_OTHER_KINDS = re.compile(
    r"embed|tts|whisper|dall-e|image|realtime|audio|transcribe|moderation|rerank|sora|"
    r"^(babbage|davinci|curie|ada)\b|^gpt-3\.5-turbo-instruct"
)
_EMBEDDING = re.compile(r"embed|(^|[/_-])(bge|e5|gte|(all-)?minilm|mxbai|paraphrase)[-_]|(^|/)(all-)?minilm(:|$)")
# OpenAI offers these only through another protocol.
_OTHER_PROTOCOLS = re.compile(r"^(gpt-|o\d|codex|computer-use).*?(codex|-pro\b|deep-research|computer-use)")


def chats(name: str, *, responses: bool = False) -> bool:
    """Checks by its name whether a listed model can chat; `responses` if that protocol is available."""
    lowered = name.lower()
    if _OTHER_KINDS.search(lowered) or _EMBEDDING.search(lowered):
        return False
    return responses or not _OTHER_PROTOCOLS.match(lowered)


def embeds(name: str) -> bool:
    """Checks by its name whether a listed model is an embedding model."""
    lowered = name.lower()
    return bool(_EMBEDDING.search(lowered)) and "rerank" not in lowered


def knows(name: str) -> bool:
    """Checks whether the table has an entry for the model's name."""
    return facts(name) is not UNKNOWN


def facts(name: str) -> Facts:
    """The known facts about the model by its name."""
    own = name.lower().rpartition("/")[2]
    beginnings = [beginning for beginning in _HOSTED if own.startswith(beginning)]
    if beginnings:
        return _HOSTED[max(beginnings, key=len)]
    return next((known for family, known in _OPEN if family.search(own)), UNKNOWN)


def info(kind: str, endpoint: Endpoint, name: str, entry: Mapping[str, Any], known_as: str | None = None) -> ModelInfo:
    """A model as it is listed. `known_as` is its maker's name where the provider lets users name it themselves."""
    known = facts(known_as or name)
    return ModelInfo(
        handle=f"{endpoint.provider}/{name}",
        name=name,
        provider_name=endpoint.provider,
        provider_type=kind,
        context_window=context_window(known_as or name, entry) or endpoint.window_unknown,
        endpoint=endpoint.shown,
        max_tokens=max_output_tokens(known_as or name, endpoint.output_tokens),
        tools=_declared(entry, ("tools", "function_calling"), known.tools),
        vision=_declared(entry, ("image", "vision", "image_input"), known.vision),
        structured_output=_declared(entry, ("structured_outputs",), known.structured_output),
        reasoning=_declared(entry, ("reasoning", "thinking"), known.reasoning),
        category="byok" if endpoint.own else "base",
    )


def context_window(name: str, declared: Mapping[str, Any]) -> int | None:
    """Size of the model's context window in tokens: as the server declares it, else from the table."""
    for field in _DECLARED:
        value = declared.get(field)
        if isinstance(value, int) and value > 0:
            return value
    return facts(name).context_window


def max_output_tokens(name: str, usual: int = MAX_TOKENS_DEFAULT) -> int | None:
    """The default limit on a reply: the usual one or, if less, the model's own."""
    longest = facts(name).longest_reply
    return None if longest is None else min(longest, usual)


def _declared(entry: Mapping[str, Any], names: tuple[str, ...], known: bool) -> bool:
    """A listing's declaration of an ability; `known` when it has none.

    Listings declare abilities as a mapping of names to yes or no (or to `{"supported": ...}`), or as lists of
    parameters and of kinds of input; an ability that is missing from the list is not supported.
    """
    abilities = entry.get("capabilities")
    if isinstance(abilities, Mapping):
        told = [_yes(abilities[name]) for name in names if name in abilities]
        return told[0] if told else known
    architecture = entry.get("architecture")
    kinds = architecture.get("input_modalities") if isinstance(architecture, Mapping) else None
    parameters = entry.get("supported_parameters")
    if isinstance(kinds, Iterable) and isinstance(parameters, Iterable):
        listed = [*kinds, *parameters]
        return any(name in listed for name in names)
    return known


def _yes(value: object) -> bool:
    return bool(value.get("supported")) if isinstance(value, Mapping) else bool(value)
