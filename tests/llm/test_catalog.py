"""What is known of models by their names and from what listings declare."""

from typing import Any

import pytest

from kelpie.core.errors import ConfigurationError
from kelpie.llm.catalog import known_models
from kelpie.llm.catalog.claude_traits import traits
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.routing import provider_kinds
from tests.llm.fakes import world

ENDPOINT = Endpoint("here", "http://here.example/v1")


@pytest.mark.parametrize(
    ("name", "window", "reply", "abilities"),
    [
        ("gpt-4o-mini-2024-07-18", 128_000, 16_384, "tools vision schema"),
        ("gpt-4-0613", 8_192, 8_192, "tools"),
        ("o3-mini", 200_000, 16_384, "tools schema reasons"),
        ("o1-mini", 128_000, 16_384, "reasons"),
        ("gpt-5.5-2026-04-23", 922_000, 16_384, "tools vision schema reasons"),
        ("gpt-5.4-mini", 272_000, 16_384, "tools vision schema reasons"),
        ("claude-3-opus-20240229", 200_000, 4_096, "tools vision"),
        ("claude-3-5-sonnet-20241022", 200_000, 8_192, "tools vision"),
        ("claude-3-7-sonnet-20250219", 200_000, 16_384, "tools vision reasons"),
        ("claude-sonnet-4-5-20250929", 200_000, 16_384, "tools vision schema reasons"),
        ("anthropic/claude-opus-5-5", 1_000_000, 16_384, "tools vision schema reasons"),
        ("google/gemini-2.5-flash", 1_048_576, 16_384, "tools vision schema reasons"),
        ("meta-llama/Llama-3.1-8B-Instruct", 32_000, None, "tools"),
        ("llama3.2-vision:11b", 32_000, None, "tools vision"),
        ("llava:7b", 32_000, None, "vision"),
        ("gemma2:2b", 32_000, None, ""),
        ("deepseek-r1:8b", 32_000, None, "tools reasons"),
        ("something-else", 32_000, None, "tools"),
    ],
)
def test_by_name(name: str, window: int, reply: int | None, abilities: str):
    info = known_models.info("openai", ENDPOINT, name, {})
    assert (info.handle, info.endpoint) == (f"here/{name}", "http://here.example/v1")
    assert (info.context_window, info.max_tokens) == (window, reply)
    flags = {
        "tools": info.tools,
        "vision": info.vision,
        "schema": info.structured_output,
        "reasons": info.reasoning,
    }
    assert [ability for ability, has in flags.items() if has] == abilities.split()
    assert info.streaming


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"max_model_len": 4096}, (4096, True, True, True)),
        (
            {
                "context_length": 9000,
                "architecture": {"input_modalities": ["text"]},
                "supported_parameters": ["tools", "reasoning"],
            },
            (9000, True, False, False),
        ),
        (
            {
                "architecture": {"input_modalities": ["text", "image"]},
                "supported_parameters": ["structured_outputs"],
            },
            (128_000, False, True, True),
        ),
        (
            {"max_context_length": 7000, "capabilities": {"function_calling": False, "vision": False}},
            (7000, False, False, True),
        ),
        ({"capabilities": ["tool_use"], "architecture": "llama"}, (128_000, True, True, True)),
    ],
)
def test_what_a_server_declares_goes_before(entry: dict[str, Any], expected: tuple[int, bool, bool, bool]):
    info = known_models.info("openai", ENDPOINT, "gpt-4o", entry)
    assert (info.context_window, info.tools, info.vision, info.structured_output) == expected


def test_models_that_only_responses_can_reach():
    for name in ("gpt-5-codex", "o3-pro", "o4-mini-deep-research", "gpt-5-pro-2025-10-06"):
        assert not known_models.chats(name) and known_models.chats(name, responses=True)
    for name in ("text-embedding-3-small", "gpt-image-1", "whisper-1"):
        assert not known_models.chats(name, responses=True)


@pytest.mark.parametrize(
    ("model", "adaptive", "unasked", "off", "sampling", "forced"),
    [
        ("claude-3-7-sonnet-20250219", False, False, None, True, True),
        ("claude-opus-4-20250514", False, False, None, True, True),
        ("claude-haiku-4-5", False, False, None, True, True),
        ("claude-opus-4-6", False, False, None, True, True),
        ("claude-opus-4-7", True, False, None, False, True),
        ("claude-opus-5", True, True, "disabled", False, True),
        ("claude-sonnet-5-20260630", True, True, "disabled", False, True),
        ("claude-sonnet-5-5", True, True, "between_tools", False, False),
        ("claude-haiku-5-5", True, True, "disabled", False, False),
        ("claude-opus-5-5", True, True, None, False, False),
        ("claude-fable-5-1", True, True, None, False, False),
        ("claude-mythos-preview", True, True, None, False, False),
        ("some-claude-like", False, False, None, True, True),
    ],
)
def test_what_claude_models_take(
    model: str, adaptive: bool, unasked: bool, off: str | None, sampling: bool, forced: bool
):
    known = traits(model)
    assert (known.adaptive, known.thinks_unasked, known.off) == (adaptive, unasked, off)
    assert (known.sampling, known.forced_tools) == (sampling, forced)


async def test_each_kind_of_provider_can_be_made_and_no_other():
    for kind in provider_kinds.KINDS:
        provider = provider_kinds.make(kind, world(), ENDPOINT)
        assert provider.name == "here"
        assert provider.describe("m").handle == "here/m"
        await provider.close()
    with pytest.raises(ConfigurationError, match="telepathy"):
        provider_kinds.make("telepathy", world(), ENDPOINT)
