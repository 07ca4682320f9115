"""Everything that models read by default is plain English: no word of our own that a reader would have to learn."""

import re
from collections.abc import Iterator

import pytest

from kelpie.agent.companions.companions import PERSONA
from kelpie.agent.facts import model_prompt
from kelpie.agent.multi_agent import speaker_selection
from kelpie.agent.prompt import default_instructions, synthetic_results
from kelpie.agent.prompt.agent_types import TYPES
from kelpie.agent.prompt.summary import NOTE
from kelpie.tools.builtin import BUILTINS

# Words of the source code or of older prompts that say nothing to a model, and the plain word for each.
PRIVATE = {
    "companion": "sleeptime agent",
    "cell": "sandbox",
    "passport": "token",
    "lane": "conversation",
    "activation": "agent",
    "lose sight": "leave the context",
    "always before you": "always in your context",
    "stands in": "is in",
    "nobody": "no agent",
    "the person hears": "the user sees",
    "told": "shown",
    "heard": "received",
    "of your own accord": "on your own",
    "mended": "repaired",
    "left out": "omitted, default",
}


def texts() -> Iterator[tuple[str, str]]:
    for kind, spec in TYPES.items():
        yield f"instructions of {kind}", spec.instructions or ""
    for mode, prompt in default_instructions.SUMMARY_PROMPTS.items():
        yield f"summary prompt {mode}", prompt
    for module in (default_instructions, synthetic_results, model_prompt, speaker_selection):
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, str):
                yield f"{module.__name__}.{name}", value
    yield "note before a summary", NOTE
    yield "persona of a sleeptime agent", PERSONA
    for name, builtin in BUILTINS.items():
        yield f"tool {name}", builtin.schema["description"]
        for argument, schema in builtin.schema["parameters"]["properties"].items():
            yield f"argument {argument} of {name}", schema.get("description", "")


@pytest.mark.parametrize("word", PRIVATE)
def test_models_read_no_word_of_our_own(word: str) -> None:
    found = [where for where, text in texts() if re.search(rf"\b{word}s?\b", text, re.IGNORECASE)]
    assert found == [], f"write {PRIVATE[word]!r} instead of {word!r}"
