"""Settings for commands that must work although a setting or kelpie.toml is wrong: `stop`, `status` and `logs`."""

import sys

from kelpie.cli.output import say
from kelpie.core.settings.settings import Settings
from kelpie.world.files.settings_file import load_readable


def readable_settings() -> Settings:
    """The settings as far as they can be read; an error in them is printed and goes no further.

    Raises ConfigurationError when the error leaves the data directory in doubt.
    """
    found, error = load_readable()
    if error is not None:
        say(f"kelpie: warning: {error}", file=sys.stderr)
    return found.settings
