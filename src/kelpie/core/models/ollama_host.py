"""Ollama's own address variable, OLLAMA_HOST, in all forms that Ollama accepts: `host`, `host:port`, `:port`, a URL,
and an address to listen on, such as 0.0.0.0, which for a client means this machine.
"""

from urllib.parse import urlsplit

from kelpie.core.errors import ConfigurationError

PORT_DEFAULT = 11434
PORT_MAX = 65_535
_PORTS = {"http": 80, "https": 443}  # of an address with a scheme and no port, as Ollama reads it
_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}


def base_url(text: str) -> str:
    """The base URL of the server. A port that is no number is ignored, as Ollama does. Raises ValueError."""
    given = text.strip().strip("\"'")
    scheme, separator, rest = given.partition("://")
    if not separator:
        scheme, rest = "http", given
    if scheme not in _PORTS:
        raise ValueError(f"'{scheme}' is not http or https")
    if separator and not rest.strip("/"):
        raise ValueError("it contains no host")
    place, slash, path = rest.partition("/")
    host, port = _split(place)
    parts = urlsplit(f"{scheme}://{_ANY.get(host, host)}")
    if not parts.hostname or any(character.isspace() for character in host):
        raise ValueError("it contains no host")
    number = int(port) if port.isascii() and port.isdigit() and int(port) <= PORT_MAX else None
    number = number or (_PORTS[scheme] if separator else PORT_DEFAULT)
    return f"{scheme}://{parts.netloc}:{number}{(slash + path).rstrip('/')}"


def check_ollama_host(setting: str, text: str) -> None:
    """Raises ConfigurationError for a text that is no address."""
    try:
        base_url(text)
    except ValueError as error:
        raise ConfigurationError(
            setting, f"'{text[:80]}' is not an address ({error}); write it like 127.0.0.1:11434"
        ) from None


def _split(place: str) -> tuple[str, str]:
    """Host and port; an IPv6 address is returned in brackets, or as `::` when it stands for every address."""
    bracketed, bracket, after = place.partition("]")
    if bracket:
        address = bracketed.removeprefix("[")
        return ("::" if address == "::" else f"[{address}]"), after.removeprefix(":")
    if place.count(":") > 1:
        return ("::" if place == "::" else f"[{place}]"), ""
    host, _, port = place.partition(":")
    return host, port
