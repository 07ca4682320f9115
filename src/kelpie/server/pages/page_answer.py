"""Answers that a browser shows, with headers that limit what a page may load and do."""

from collections.abc import Mapping

from starlette.responses import Response

_POLICY = {
    "default-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "img-src": "'self' data:",
    "style-src": "'self'",
}


def page(text: str, **more: str) -> Response:
    """A page; `more` are further directives of its Content-Security-Policy, with `_` for `-`."""
    policy = _POLICY | {name.replace("_", "-"): value for name, value in more.items()}
    shown = "; ".join(f"{name} {value}" for name, value in policy.items())
    return answer(text.encode(), "text/html; charset=utf-8", {"Content-Security-Policy": shown})


def answer(body: bytes, media_type: str, headers: Mapping[str, str] | None = None, status: int = 200) -> Response:
    """A page or one of its files."""
    safe = {
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    return Response(body, status, media_type=media_type, headers=safe | dict(headers or {}))
