"""The web tools and their runners, by name."""

from collections.abc import Mapping

from kelpie.core.settings.settings import Settings
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.tools.calls.interface import ExternalTool
from kelpie.tools.web.fetch_webpage import FetchWebpage
from kelpie.tools.web.web_search import WebSearch
from kelpie.world.world import World


def web_tools(world: World, settings: Settings, share: OrganizationShare | None = None) -> Mapping[str, ExternalTool]:
    """Every server has these tools; without a search provider, `web_search` names the missing setting."""
    return {
        "web_search": WebSearch(world, settings, share),
        "fetch_webpage": FetchWebpage(world, settings, share),
    }
