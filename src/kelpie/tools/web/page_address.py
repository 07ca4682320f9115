"""Addresses that `fetch_webpage` may ask for. Each is checked before it is used, also after a redirect.

The transport checks the IP addresses; here the form of the address, its port and the lists of hosts count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from kelpie.core.errors import ToolError
from kelpie.core.tools import egress_rules
from kelpie.core.tools.egress_rules import EgressEntry

URL_CHARS_MAX = 4096
PORT_MIN = 1024  # lower ones are of other protocols, except the usual two


@dataclass(frozen=True, slots=True)
class PageAddresses:
    """The addresses that one call may reach. A list is None where every public host is allowed."""

    permitted: Sequence[EgressEntry] | None = None  # by the operator
    of_code: Sequence[EgressEntry] | None = None  # by the tool whose code makes the call

    def checked(self, text: str) -> httpx.URL:
        """The address in its normal form, without a fragment. Raises ToolError."""
        if len(text) > URL_CHARS_MAX:
            raise ToolError(f"The URL has more than {URL_CHARS_MAX} characters.")
        try:
            url = httpx.URL(text.strip()).copy_with(fragment=None)
        except (httpx.InvalidURL, ValueError):
            raise _wrong(text) from None
        found = egress_rules.destination(str(url))
        if found is None or not found[0]:
            raise _wrong(text)
        host, port = found
        if port not in egress_rules.USUAL_PORTS and not PORT_MIN <= port < 65536:
            raise ToolError(f"Port {port} is not one of web pages; use 80, 443, or {PORT_MIN} and higher.")
        if self.permitted is not None and not egress_rules.allows(self.permitted, host, port):
            raise ToolError(f"{host}:{port} was not fetched: the operator allows other hosts only (limits.egress).")
        if self.of_code is not None and not egress_rules.allows(self.of_code, host, port):
            raise ToolError(
                f"{host}:{port} was not fetched: the tool whose code asks for it does not list this host in its egress."
            )
        return url

    def redirected(self, url: httpx.URL, location: str) -> httpx.URL:
        """The checked target of a redirect. Raises ToolError."""
        try:
            target = str(url.join(location))
        except (httpx.InvalidURL, ValueError):
            raise _wrong(location) from None
        return self.checked(target)


def _wrong(text: str) -> ToolError:
    return ToolError(
        f"'{text[:200]}' is not the address of a web page. Use a form such as https://example.com/page, without user "
        "name or password."
    )
