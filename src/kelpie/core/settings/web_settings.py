"""Settings of the web tools: the search providers, and the limits of searches and downloads."""

from dataclasses import dataclass

from kelpie.core.access.hosts import check_address
from kelpie.core.settings.declaration import setting

TAVILY_URL = "https://api.tavily.com"
EXA_URL = "https://api.exa.ai"
BRAVE_URL = "https://api.search.brave.com"
SEARCH_PROVIDERS = ("tavily", "exa", "brave", "searxng")


@dataclass(frozen=True)
class WebSettings:
    """Settings of `web_search` and `fetch_webpage`."""

    web_search_provider: str = setting(
        "web.search_provider",
        "Provider of `web_search`: `tavily`, `exa`, `brave` or `searxng`. `auto` takes the first of them that is set "
        "up, in this order.",
        "KELPIE_WEB_SEARCH_PROVIDER",
        default="auto",
        choices=("auto", *SEARCH_PROVIDERS),
    )
    web_search_s: float = setting(
        "web.search_seconds",
        "Maximum duration of one `web_search`, including waits for the provider's rate limit.",
        "KELPIE_WEB_SEARCH_SECONDS",
        default=10.0,
        low=0.1,
        high=60.0,
    )
    tavily_api_key: str | None = setting(
        "web.tavily.api_key", "Key for Tavily; enables it for `web_search`.", "TAVILY_API_KEY", secret=True
    )
    tavily_base_url: str = setting(
        "web.tavily.base_url",
        "Base URL of Tavily's API, or of a proxy for it.",
        "TAVILY_BASE_URL",
        default=TAVILY_URL,
        check=check_address,
    )
    exa_api_key: str | None = setting(
        "web.exa.api_key", "Key for Exa; enables it for `web_search`.", "EXA_API_KEY", secret=True
    )
    exa_base_url: str = setting(
        "web.exa.base_url",
        "Base URL of Exa's API, or of a proxy for it.",
        "EXA_BASE_URL",
        default=EXA_URL,
        check=check_address,
    )
    brave_api_key: str | None = setting(
        "web.brave.api_key",
        "Key for Brave Search; enables it for `web_search`.",
        "BRAVE_API_KEY",
        "BRAVE_SEARCH_API_KEY",
        secret=True,
    )
    brave_base_url: str = setting(
        "web.brave.base_url",
        "Base URL of the API of Brave Search, or of a proxy for it.",
        "BRAVE_BASE_URL",
        default=BRAVE_URL,
        check=check_address,
    )
    searxng_base_url: str | None = setting(
        "web.searxng.base_url",
        "URL of a SearXNG server, such as `http://127.0.0.1:8888`; enables it for `web_search`. Its `settings.yml` "
        "must list `json` under `search.formats`.",
        "SEARXNG_BASE_URL",
        "SEARXNG_URL",
        check=check_address,
    )
    web_fetch_s: float = setting(
        "web.fetch_seconds",
        "Maximum duration of the download of one page by `fetch_webpage`, including redirects.",
        "KELPIE_WEB_FETCH_SECONDS",
        default=20.0,
        low=0.1,
        high=300.0,
    )
    web_page_mb_max: int = setting(
        "web.page_mb_max",
        "Maximum size in megabytes of a page or PDF that `fetch_webpage` downloads, both compressed and uncompressed.",
        "KELPIE_WEB_PAGE_MB_MAX",
        default=8,
        low=1,
        high=64,
    )
    web_private: bool = setting(
        "web.private",
        "Whether `fetch_webpage` may reach addresses on this machine and in private networks.",
        "KELPIE_WEB_PRIVATE",
        default=False,
    )
