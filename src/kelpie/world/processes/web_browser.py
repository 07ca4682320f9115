"""The web browser of the person at this machine."""

import os
import sys
import webbrowser

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def open_page(url: str) -> bool:
    """Opens a page in the browser; False where there is none with windows: one for terminals would take it."""
    if sys.platform not in ("darwin", "win32") and not any(os.environ.get(name) for name in _DISPLAYS):
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
