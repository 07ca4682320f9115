"""Reports on providers: what each offers now, what it hides and why, or the error of its listing."""

from collections.abc import Sequence
from dataclasses import dataclass

from kelpie.core.errors import ModelError
from kelpie.llm.local.server import LocalServer
from kelpie.llm.provider.interface import HiddenModel, ModelInfo, Provider
from kelpie.llm.routing.model_listing import Listing
from kelpie.llm.routing.providers import address_to_set


@dataclass(frozen=True, slots=True)
class ProviderReport:
    """The present state of one provider: offered models, hidden models and why, or the error of its listing."""

    provider: str
    server: str | None  # the kind of local server that answered
    models: tuple[ModelInfo, ...] = ()
    hidden: tuple[HiddenModel, ...] = ()
    error: ModelError | None = None
    endpoint: str | None = None
    own: bool = False  # true if the organization has added it
    setting: str | None = None  # for a local server that Kelpie found by itself: the setting that would name it


async def report_on(listing: Listing, *, found: bool, own: bool = False) -> ProviderReport:
    """The report on one provider; `found` says that no setting names it, `own` that an organization has added it."""
    provider = listing.provider
    server: str | None = None
    try:
        models: Sequence[ModelInfo] = await listing.models()
        error = None
    except ModelError as failure:
        models, error = (), failure
    endpoint = models[0].endpoint if models else None
    if isinstance(provider, LocalServer):
        server, endpoint = provider.server, provider.address
    setting = address_to_set(provider.name, endpoint) if found and endpoint else None
    hidden = hidden_models(provider)
    return ProviderReport(provider.name, server, tuple(models), hidden, error, endpoint, own, setting)


def hidden_models(provider: Provider) -> tuple[HiddenModel, ...]:
    """The models of a provider that cannot chat; most providers list none."""
    return tuple(getattr(provider, "hidden", ()))
