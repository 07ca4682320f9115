"""Limits on the size of a request body, by route: messages may hold images, uploads are streamed to disk, and all other
bodies are small.

The limits are checked before a body is read. `json_body` limits the number of values in it as well, because many small
values cost far more than one long text.
"""

from dataclasses import dataclass

_WITH_IMAGES = frozenset({"completions", "generate", "messages", "responses"})  # parts of a path
_HOOKS = "/v1/hooks/"
_UPLOADS = ("/memory/restore", "/agents/import", "/upload")  # ends of a path


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The limit of one kind of body, and the environment variable that raises it."""

    bytes_max: int
    setting: str

    @property
    def refusal(self) -> str:
        return f"The body is larger than {self.bytes_max} bytes; send less, or raise {self.setting}."


class BodyLimits:
    """The limits of one server."""

    def __init__(self, *, images: int, plain: int, uploads: int, hooks: int) -> None:
        self._images = BodyLimit(images, "KELPIE_BODY_BYTES_MAX")
        self._plain = BodyLimit(min(plain, images), _plain_setting(plain, images))
        self._hooks = BodyLimit(min(hooks, images), "KELPIE_HOOK_BYTES_MAX")
        self._uploads = BodyLimit(uploads, "KELPIE_UPLOAD_BYTES_MAX")

    def of(self, method: str, path: str) -> BodyLimit:
        """The limit of a request."""
        path = path.rstrip("/")
        if path.startswith(_HOOKS):
            return self._hooks
        if path.endswith(_UPLOADS):
            return self._uploads
        creates_agent = method == "POST" and path.endswith("/agents")  # with its first messages
        return self._images if creates_agent or not _WITH_IMAGES.isdisjoint(path.split("/")) else self._plain


def _plain_setting(plain: int, images: int) -> str:
    return "KELPIE_JSON_BYTES_MAX" if plain <= images else "KELPIE_BODY_BYTES_MAX"
