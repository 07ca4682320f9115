"""The settings of compaction that an agent is made with, and what a change or a single request makes of them.

They are kept by the wire's names with every default filled in, so that a client sees what will happen.
"""

from collections.abc import Mapping
from typing import Any

from kelpie.agent.prompt.default_instructions import SUMMARY_PROMPTS
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.compaction_settings import CLIP_CHARS_DEFAULT, SHARE_DEFAULT, CompactionSettings, Mode, parse
from kelpie.core.errors import InvalidInput

_SUMMARIZERS = {"openai": "openai/gpt-5-mini", "anthropic": "anthropic/claude-haiku-4-5"}
_FIELDS = (
    "model", "model_settings", "prompt", "prompt_acknowledgement", "clip_chars", "mode", "sliding_window_percentage",
)  # fmt: skip
_NULLABLE = frozenset({"clip_chars", "model_settings"})  # null says something else than being left out


def summarizer(handle: str) -> str:
    """The model that shortens the history of an agent with this model, unless the client chooses another."""
    return _SUMMARIZERS.get(handle.partition("/")[0], handle)


def made(given: Mapping[str, Any] | None, handle: str) -> dict[str, Any]:
    """Settings of a new agent: those of the client over the defaults. Raises InvalidInput."""
    defaults: dict[str, Any] = {
        "model": summarizer(handle),
        "model_settings": None,
        "prompt": SUMMARY_PROMPTS[Mode.sliding_window],
        "prompt_acknowledgement": False,
        "clip_chars": CLIP_CHARS_DEFAULT,
        "mode": Mode.sliding_window.value,
        "sliding_window_percentage": SHARE_DEFAULT,
    }
    return changed(defaults, given or {})


def changed(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with what is given, field by field; another mode brings its own prompt. Raises InvalidInput."""
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from outside
        raise InvalidInput("compaction_settings", "must be an object")
    asked = {name: given[name] for name in _FIELDS if name in given and (given[name] is not None or name in _NULLABLE)}
    settings = {**stored, **asked}
    mode = parse(settings).mode
    if "prompt" not in asked and mode != parse(stored).mode:
        settings["prompt"] = SUMMARY_PROMPTS[mode]
    return settings


def moved(stored: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
    """The settings when the agent gets another model: the summary model changes with it unless a client chose it."""
    chosen = stored.get("model") != summarizer(before)
    return dict(stored) if chosen else {**stored, "model": summarizer(after)}


def asked_for(agent: Agent, given: Mapping[str, Any] | None) -> CompactionSettings:
    """Settings of one compaction: those of the request over the agent's. Raises InvalidInput for the request's."""
    stored = agent.compaction_settings or made(None, agent.model.handle)
    return parse(changed(stored, given) if given else stored)
