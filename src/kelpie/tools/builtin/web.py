"""Tools for the web. They are registered because agents made for Letta name them; Kelpie cannot reach the web yet, so
each call fails and says so.
"""

from collections.abc import Mapping
from typing import Any

from kelpie.core.errors import ToolError
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.database import Tx


def web_search(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Raises ToolError: there is no search engine."""
    raise ToolError(
        "web_search is not available: this version of Kelpie cannot search the web. Answer without it, and tell the "
        "user that you could not search."
    )


def fetch_webpage(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Raises ToolError: nothing is fetched."""
    raise ToolError(
        "fetch_webpage is not available: this version of Kelpie cannot fetch web pages. Answer without it, and tell "
        "the user that you did not read the page."
    )
