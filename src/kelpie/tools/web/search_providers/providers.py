"""The search provider of a server, as its settings say."""

from kelpie.core.errors import ToolError
from kelpie.core.settings.settings import Settings
from kelpie.core.settings.web_settings import SEARCH_PROVIDERS
from kelpie.tools.web.search_providers.brave import Brave
from kelpie.tools.web.search_providers.exa import Exa
from kelpie.tools.web.search_providers.search_provider import SearchProvider
from kelpie.tools.web.search_providers.searxng import Searxng
from kelpie.tools.web.search_providers.tavily import Tavily

_VARIABLES = {
    "tavily": "TAVILY_API_KEY",
    "exa": "EXA_API_KEY",
    "brave": "BRAVE_API_KEY",
    "searxng": "SEARXNG_BASE_URL",
}


def search_provider(settings: Settings) -> SearchProvider:
    """The provider that searches. Raises ToolError that names the missing setting."""
    chosen = settings.web_search_provider
    for name in SEARCH_PROVIDERS if chosen == "auto" else (chosen,):
        if (found := _provider(name, settings)) is not None:
            return found
    if chosen == "auto":
        missing = f"set one of {', '.join(_VARIABLES.values())}"
    else:
        missing = f"set {_VARIABLES[chosen]}, because KELPIE_WEB_SEARCH_PROVIDER is {chosen}"
    raise ToolError(
        f"web_search is not set up on this server: the operator must {missing}. Answer without it, and tell the user "
        "that you could not search."
    )


def _provider(name: str, settings: Settings) -> SearchProvider | None:
    if name == "tavily":
        return Tavily(settings.tavily_api_key, settings.tavily_base_url) if settings.tavily_api_key else None
    if name == "exa":
        return Exa(settings.exa_api_key, settings.exa_base_url) if settings.exa_api_key else None
    if name == "brave":
        return Brave(settings.brave_api_key, settings.brave_base_url) if settings.brave_api_key else None
    return Searxng(settings.searxng_base_url) if settings.searxng_base_url else None
