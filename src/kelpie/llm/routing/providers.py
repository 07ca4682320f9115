"""Providers that the settings enable, by the names that Letta's users know: one table, and their construction.

A provider is enabled when its key or its address is set. The table also names the setting for one that is not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from urllib.parse import urlsplit

from kelpie.core.errors import ConfigurationError
from kelpie.core.models import ollama_host
from kelpie.core.models.model_providers import UNSAVED, ModelProvider, ProviderAccess, check_access
from kelpie.core.models.provider_limits import ProviderLimits, parse_handles, parse_limits
from kelpie.core.models.provider_types import PROVIDER_TYPES, ProviderType
from kelpie.core.settings.settings import Settings
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.llm.catalog.price_list import Prices
from kelpie.llm.demo.provider import DemoProvider
from kelpie.llm.limits.limited_provider import LIMITS_VARIABLE, LimitedProvider
from kelpie.llm.limits.limiter import Limiter
from kelpie.llm.local.server import LocalServer
from kelpie.llm.openai.chat import OpenAIChat
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import ChatProvider, EmbeddingInfo, Provider
from kelpie.llm.provider.retry import RetryLimits
from kelpie.world.lazy_imports import lazily
from kelpie.world.world import World

with lazily:
    from kelpie.llm.routing import provider_kinds as _provider_kinds

FALLBACKS_VARIABLE = "KELPIE_MODEL_FALLBACKS"
_MAKERS = {"openai": "api.openai.com", "anthropic": "api.anthropic.com"}
_RESPONSES = {"auto": None, "always": True, "never": False}


@dataclass(frozen=True, slots=True)
class Offer:
    """A provider that can be set up. Its key and address are the fields of Settings named after it."""

    name: str
    kind: str
    variable: str  # the variable that enables it
    url: str | None = None  # its address, unless a setting overrides it
    url_variable: str = ""


OFFERS = (
    Offer("openai", "openai", "OPENAI_API_KEY", url_variable="OPENAI_BASE_URL"),
    Offer("anthropic", "anthropic", "ANTHROPIC_API_KEY", url_variable="ANTHROPIC_BASE_URL"),
    Offer("azure", "azure", "AZURE_API_KEY", url_variable="AZURE_BASE_URL"),
    Offer("groq", "hosted", "GROQ_API_KEY", PROVIDER_TYPES["groq"].url),
    Offer("together", "hosted", "TOGETHER_API_KEY", PROVIDER_TYPES["together"].url),
    Offer("deepseek", "hosted", "DEEPSEEK_API_KEY", PROVIDER_TYPES["deepseek"].url),
    Offer("xai", "hosted", "XAI_API_KEY", PROVIDER_TYPES["xai"].url),
    Offer("openrouter", "hosted", "OPENROUTER_API_KEY", PROVIDER_TYPES["openrouter"].url),
)
LOCAL_OFFERS = (
    Offer("ollama", "ollama", "OLLAMA_BASE_URL"),
    Offer("lmstudio", "lmstudio", "LMSTUDIO_BASE_URL"),
    Offer("vllm", "vllm", "VLLM_API_BASE"),
    Offer("llamacpp", "llamacpp", "LLAMACPP_BASE_URL"),
    Offer("localai", "localai", "LOCALAI_BASE_URL"),
)
ALL_OFFERS = (*OFFERS, *LOCAL_OFFERS)
OWN_LIMITS = "byok"  # in the limits: every provider that an organization adds
# Names that no organization can give to a provider: the first part of a handle says whose it is.
RESERVED_NAMES = frozenset({*(offer.name for offer in ALL_OFFERS), "kelpie", "letta", OWN_LIMITS})


class HostedProvider(OpenAIChat):
    """A hosting service with OpenAI's protocol under its own name."""

    def __init__(
        self, world: World, endpoint: Endpoint, limits: RetryLimits, kind: str | None = None, name_prefix: str = ""
    ) -> None:
        super().__init__(world, endpoint, limits)
        self.kind = kind or endpoint.provider
        self.name_prefix = name_prefix

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        """None: their models are not OpenAI's, and of unknown size."""
        return []


@dataclass(frozen=True, slots=True)
class ConfiguredProvider:
    """A provider that is set up. Only its chat calls go through `limited`; everything else asks `provider` itself."""

    provider: Provider
    limited: LimitedProvider | None = None

    @property
    def chat(self) -> ChatProvider:
        return self.limited or self.provider


def make_providers(
    world: World, settings: Settings, prices: Prices, share: OrganizationShare | None = None
) -> list[ConfiguredProvider]:
    """The providers that are set up, with their limits. Raises ConfigurationError."""
    bounds = _bounds(settings)
    made = [ConfiguredProvider(DemoProvider(embedder=world.embedder, traced=settings.trace_steps > 0))]
    for offer in ALL_OFFERS:
        endpoint = _endpoint(offer, settings)
        if endpoint is not None:
            make = _maker(world, offer, endpoint, settings)
            limiter = _limiter(offer.name, bounds, settings, share)
            made.append(_within(make, limiter, prices, settings, world.random))
    return made


def make_found(
    world: World, settings: Settings, prices: Prices, share: OrganizationShare | None, kind: str, url: str
) -> ConfiguredProvider:
    """The provider for a local server that was found at this address. Raises ConfigurationError."""
    offer = next(each for each in LOCAL_OFFERS if each.kind == kind)
    endpoint = _endpoint(offer, replace(settings, **{f"{kind}_base_url": url}))
    assert endpoint is not None
    limiter = _limiter(offer.name, _bounds(settings), settings, share)
    return _within(_maker(world, offer, endpoint, settings), limiter, prices, settings, world.random)


def make_own(
    world: World, settings: Settings, prices: Prices, provider: ModelProvider, limiter: Limiter | None
) -> ConfiguredProvider:
    """The provider that an organization added. Raises InvalidInput, ConfigurationError."""
    access = provider.access
    check_access(access, private=settings.provider_private)
    kind = PROVIDER_TYPES[access.provider_type]
    whose = provider.name if provider.name == UNSAVED else f"the provider {provider.name}"
    endpoint = Endpoint(
        provider.name,
        access.base_url or kind.url or "",
        access.api_key,
        f"the api_key of {whose}",
        f"the base_url of {whose}",
        api_version=access.api_version,
        window_unknown=settings.context_window_unknown,
        output_tokens=settings.output_tokens,
        public=not settings.provider_private,
        own=True,
    )
    make = _own_maker(world, kind, endpoint)
    return _within(make, limiter, prices, settings, world.random, own=True)


def own_limiter(provider: ModelProvider, settings: Settings) -> Limiter | None:
    """The limits of a provider that an organization added: it shares them with no other organization."""
    return _limiter(OWN_LIMITS, _bounds(settings), settings, None, provider.name)


def limits_own_money(settings: Settings) -> bool:
    """True if the providers that organizations add have a limit on money."""
    bounds = _bounds(settings).get(OWN_LIMITS)
    return bounds is not None and bounds.dollars is not None


def own_price_list(access: ProviderAccess) -> str:
    """The provider whose prices hold for one that an organization added; "" when they are not known."""
    kind = PROVIDER_TYPES[access.provider_type]
    if kind.protocol == "local":
        return kind.server
    maker = _MAKERS.get(kind.name)
    return kind.name if maker is not None and _is_at(access.base_url or kind.url or "", maker) else ""


def _own_maker(world: World, kind: ProviderType, endpoint: Endpoint) -> Callable[[RetryLimits], Provider]:
    match kind.protocol:
        case "local":
            speaks = replace(endpoint, speaks=f"a server such as {kind.server}")
            return lambda limits: LocalServer(world, speaks, kind.server, limits)
        case "hosted":
            return lambda limits: HostedProvider(world, endpoint, limits, kind.name)
        case "google":
            return lambda limits: HostedProvider(world, endpoint, limits, kind.name, "models/")
        case _:
            return lambda limits: _provider_kinds.make(kind.protocol, world, endpoint, limits)


def listed_prices(settings: Settings) -> frozenset[str]:
    """Providers that are asked at their maker's own address, so that the maker's list prices hold."""
    addresses = {"openai": settings.openai_base_url, "anthropic": settings.anthropic_base_url}
    return frozenset(name for name, url in addresses.items() if _is_at(url, _MAKERS[name]))


def _is_at(url: str, host: str) -> bool:
    """Checks whether a URL is one of this host or of its subdomains, such as those of regions."""
    return f".{urlsplit(url).hostname}".endswith(f".{host}")


def address_to_set(kind: str, url: str) -> str:
    """The setting that enables a local server at this address."""
    offer = next(each for each in LOCAL_OFFERS if each.kind == kind)
    return f"{offer.variable}={url}"


def fallbacks(settings: Settings, names: Sequence[str]) -> tuple[str, ...]:
    """The server's chain of models. Raises ConfigurationError when one of them is of a provider that is not set up."""
    chain = parse_handles(FALLBACKS_VARIABLE, settings.model_fallbacks)
    for handle in chain:
        provider = handle.partition("/")[0]
        if provider not in names:
            raise ConfigurationError(FALLBACKS_VARIABLE, f"'{handle}' is not available. {how_to_have(provider)}")
    return chain


def how_to_have(provider: str) -> str:
    """The settings that enable a provider."""
    offer = next((each for each in ALL_OFFERS if each.name == provider), None)
    if offer is None:
        return f"There is no provider '{provider[:80]}'; use one of {', '.join(each.name for each in ALL_OFFERS)}"
    if offer.name == "openai":
        return "Set OPENAI_API_KEY (or OPENAI_BASE_URL for a compatible server) to use the models of openai"
    if offer.name == "azure":
        return "Set AZURE_API_KEY and AZURE_BASE_URL to use the models of azure"
    return f"Set {offer.variable} to use the models of {offer.name}"


def _endpoint(offer: Offer, settings: Settings) -> Endpoint | None:
    """Address and key of the provider; None when it is not set up."""
    key: str | None = getattr(settings, f"{offer.name}_api_key", None)
    url: str | None = offer.url or getattr(settings, f"{offer.name}_base_url")
    local, url_variable = offer in LOCAL_OFFERS, offer.url_variable or offer.variable
    if offer.name == "ollama" and not url and settings.ollama_host:
        url, url_variable = ollama_host.base_url(settings.ollama_host), "OLLAMA_HOST"
    compatible = offer.name == "openai" and (url or "").rstrip("/") != Settings().openai_base_url
    if not url or not (key or compatible or local):
        return None
    made = Endpoint(
        offer.name,
        url,
        key,
        offer.variable,
        url_variable,
        window_unknown=settings.context_window_unknown,
        output_tokens=settings.output_tokens,
    )
    if local:
        return replace(made, speaks=f"a server such as {offer.name}")
    if offer.name == "azure":
        return replace(made, api_version=settings.azure_api_version, models=settings.azure_deployments)
    return replace(made, responses=_RESPONSES[settings.openai_responses]) if offer.name == "openai" else made


def _maker(world: World, offer: Offer, endpoint: Endpoint, settings: Settings) -> Callable[[RetryLimits], Provider]:
    if offer in LOCAL_OFFERS:
        pull = settings.pull_missing_models
        return lambda limits: LocalServer(world, endpoint, offer.kind, limits, pull_missing=pull)
    if offer.kind == "hosted":
        return lambda limits: HostedProvider(world, endpoint, limits)
    return lambda limits: _provider_kinds.make(offer.kind, world, endpoint, limits)


def _within(
    make: Callable[[RetryLimits], Provider],
    limiter: Limiter | None,
    prices: Prices,
    settings: Settings,
    random: Random,
    *,
    own: bool = False,
) -> ConfiguredProvider:
    limits = _limits(settings)
    if limiter is None:
        return ConfiguredProvider(make(limits))
    provider = make(replace(limits, attempts=1))
    return ConfiguredProvider(provider, LimitedProvider(provider, limiter, limits, prices, random, own=own))


def _limiter(
    name: str,
    bounds: Mapping[str, ProviderLimits],
    settings: Settings,
    share: OrganizationShare | None,
    called: str | None = None,
) -> Limiter | None:
    """None for a provider without limits. `called` is its name in messages, if it is another."""
    found = bounds.get(name)
    return None if found is None else Limiter(called or name, found, settings.provider_wait_s, share)


def _limits(settings: Settings) -> RetryLimits:
    return RetryLimits(
        attempts=settings.model_attempts,
        total_s=settings.model_timeout_s,
        first_byte_s=settings.model_first_byte_s,
        idle_s=settings.model_silence_s,
        backoff_s=settings.model_backoff_s,
        retry_after_s_max=settings.model_retry_after_s,
        connect_s=settings.model_connect_s,
        listing_s=settings.model_listing_s,
        pull_s=settings.model_pull_s,
    )


def _bounds(settings: Settings) -> dict[str, ProviderLimits]:
    bounds = parse_limits(LIMITS_VARIABLE, settings.provider_limits)
    known = {OWN_LIMITS, *(offer.name for offer in ALL_OFFERS)}
    for name in bounds:
        if name not in known:
            raise ConfigurationError(LIMITS_VARIABLE, how_to_have(name))
    return bounds
