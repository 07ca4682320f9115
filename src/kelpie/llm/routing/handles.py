"""Handles of models, `provider/model`: only the first slash counts. Also the error for a handle that names nothing."""

from collections.abc import Sequence

from kelpie.core.errors import InvalidInput, NotFound
from kelpie.llm.local.server import LocalServer
from kelpie.llm.routing.providers import ALL_OFFERS, RESERVED_NAMES, how_to_have

HANDLES_TOLD_MAX = 50
LETTA_FREE = "letta/letta-free"  # in old examples and agent files: a model and an embedding model of every Letta server
# Names that Letta gives to providers: the first to that of OPENAI_BASE_URL, if it is another address than OpenAI's.
LETTA_NAMES = {"openai-proxy": "openai", "lmstudio_openai": "lmstudio"}


def split(field: str, handle: str) -> tuple[str, str]:
    """The provider and its name of the model. Raises InvalidInput."""
    provider, slash, model = handle.partition("/")
    if not (provider and slash and model):
        raise InvalidInput(field, f"'{handle[:80]}' is not a handle of the form provider/model, such as kelpie/demo")
    return provider, model


def unknown(handle: str, known: Sequence[str], local: LocalServer | None) -> NotFound:
    """The error for a handle that is none of those known, with the remedy; `local` is the server it would be on."""
    more = ", ..." if len(known) > HANDLES_TOLD_MAX else ""
    text = f"Handle {handle[:200]} not found, must be one of [{', '.join(known[:HANDLES_TOLD_MAX])}{more}]"
    provider, _, name = handle.partition("/")
    set_up = any(one.startswith(f"{provider}/") for one in known)
    if local is not None and (command := local.command(name)):
        text += f". Type `{command[:200]}`, or set KELPIE_PULL_MISSING_MODELS=true"
    elif not set_up and any(offer.name == provider for offer in ALL_OFFERS):
        text += f". {how_to_have(provider)}"
    elif not set_up and provider not in RESERVED_NAMES:
        text += f". There is no provider '{provider[:80]}'; add it with POST /v1/providers, or choose another model"
    error = NotFound("Handle", handle)
    error.args = (text,)
    return error
