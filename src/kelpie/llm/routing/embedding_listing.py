"""The embedding models of a provider, and the error for one that is asked to chat."""

from collections.abc import Sequence

from kelpie.core.errors import InvalidInput
from kelpie.llm.local.server import LocalServer
from kelpie.llm.provider.interface import EmbeddingInfo
from kelpie.llm.routing.model_listing import Listing, spellings
from kelpie.llm.routing.provider_report import hidden_models


async def embeddings_of(listing: Listing, only: Sequence[str] | None = None) -> Sequence[EmbeddingInfo]:
    """The embedding models of a provider, or those of these names. Raises ModelError."""
    provider = listing.provider
    if not isinstance(provider, LocalServer):
        return [each for each in await provider.embeddings() if only is None or each.name in only]
    await listing.models()  # it caches for a while that a server does not answer
    return await provider.embeddings(only)


async def check_it_chats(listing: Listing, handle: str, name: str) -> None:
    """Raises InvalidInput for a model that exists and cannot chat."""
    names = spellings(listing.provider, name)
    found = next((each for each in hidden_models(listing.provider) if each.name in names), None)
    if (found is not None and found.embeds) or (found is None and await embeddings_of(listing, names)):
        use = "use it as the embedding of an agent or archive"
        raise InvalidInput("model", f"{handle[:200]} is an embedding model and cannot chat; {use}")
    if found is not None:
        raise InvalidInput("model", f"{handle[:200]} cannot chat: {found.reason}")
