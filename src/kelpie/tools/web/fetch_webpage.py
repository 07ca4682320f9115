"""`fetch_webpage`: the readable text of a page or PDF, downloaded within limits on time and size.

Only public addresses are reached, at the start and after each redirect; the address that was checked is the one that is
connected to. No cookie is kept and no script is run.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from kelpie import __version__
from kelpie.core.errors import Overloaded, ToolError
from kelpie.core.settings.settings import Settings
from kelpie.core.tools import egress_rules
from kelpie.core.tools.tools import Tool
from kelpie.fairness.fair_slots import FairSlots, SlotLimits
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.web.page_address import PageAddresses
from kelpie.tools.web.page_kind import PageKind, kind_of
from kelpie.tools.web.page_reader import MEGABYTE, read_page
from kelpie.tools.web.raw_exchange import ENCODINGS, RawAnswer, TooLarge, read_body
from kelpie.world.world import World

AT_ONCE = 16
WAITING_MAX = 256
REDIRECTS_MAX = 5
_ACCEPTED = "text/html, application/xhtml+xml, application/pdf, text/*;q=0.9, application/json;q=0.9, */*;q=0.1"
_REDIRECTS = (301, 302, 303, 307, 308)


class FetchWebpage:
    """The downloads of one server."""

    def __init__(self, world: World, settings: Settings, share: OrganizationShare | None = None) -> None:
        self._world = world
        self._settings = settings
        self._bytes_max = settings.web_page_mb_max * MEGABYTE
        self._permitted = egress_rules.entries(settings.tool_egress) if settings.tool_egress else None
        self._slots = FairSlots(
            SlotLimits("web_downloads_full", "download of a page", AT_ONCE, WAITING_MAX, settings.web_fetch_s), share
        )

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """The text of the page. Raises ToolError."""
        of_code = None if call.code_egress is None else egress_rules.entries(call.code_egress)
        addresses = PageAddresses(self._permitted, of_code)
        url = addresses.checked(str(arguments["url"]))
        limit_s = min(self._settings.web_fetch_s, call.quota.wall_s or self._settings.web_fetch_s)
        try:
            async with asyncio.timeout(limit_s), self._slots.slot(call.agent.consumer):
                url, kind, answer = await self._download(addresses, url)
        except TimeoutError:
            raise ToolError(f"{url} was not downloaded within {limit_s:g} s.") from None
        except Overloaded as error:
            raise ToolError(f"Nothing was fetched: {error}.") from None
        owner = call.agent.organization_id
        page = await read_page(self._world.workers, owner, str(url), answer, kind, self._bytes_max)
        return Outcome(page.shown)

    async def _download(self, addresses: PageAddresses, url: httpx.URL) -> tuple[httpx.URL, PageKind, RawAnswer]:
        """The last address, and the answer there. Raises ToolError."""
        transport = self._world.http.transport(public=not self._settings.web_private)
        try:
            for _ in range(REDIRECTS_MAX + 1):
                response = await transport.handle_async_request(_request(url))
                try:
                    location = response.headers.get("location")
                    if response.status_code not in _REDIRECTS or not location:
                        return url, *await self._read(url, response)
                finally:
                    await response.aclose()
                url = addresses.redirected(url, location)
        except TooLarge:
            raise ToolError(
                f"The page at {url} is larger than {self._settings.web_page_mb_max} MB (web.page_mb_max)."
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ToolError(f"{url} could not be fetched: {str(error) or type(error).__name__}.") from None
        finally:
            await transport.aclose()
        raise ToolError(f"The page was not fetched: more than {REDIRECTS_MAX} redirects, the last one to {url}.")

    async def _read(self, url: httpx.URL, response: httpx.Response) -> tuple[PageKind, RawAnswer]:
        """Raises ToolError, TooLarge, httpx.HTTPError."""
        status, media = response.status_code, response.headers.get("content-type", "")
        if not 200 <= status < 300:
            raise ToolError(f"{url} answered with status {status}.")
        if (kind := kind_of(media)) is None:
            raise ToolError(f"{url} is of the type {media.partition(';')[0][:80]}, which has no text to read.")
        return kind, RawAnswer(status, response.headers, await read_body(response, self._bytes_max))


def _request(url: httpx.URL) -> httpx.Request:
    headers = {"accept": _ACCEPTED, "accept-encoding": ENCODINGS, "user-agent": f"Kelpie/{__version__}"}
    return httpx.Request("GET", url, headers=headers)
