"""Groups and commands of the command line, as typer builds them, with plain help, clear usage errors and synonyms.

Typer shows the types of Python in its help and the words of its validator in its errors; both are replaced here.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from kelpie.cli.exit_codes import USAGE

# Words that people know from other programs. The first that the group has is run.
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "ls": ("list",),
    "ps": ("list",),
    "rm": ("delete", "remove", "revoke"),
    "delete": ("remove", "revoke"),
    "remove": ("delete", "revoke", "detach"),
    "new": ("create", "add"),
    "add": ("create",),
    "get": ("show",),
    "inspect": ("show",),
}
# Words for what a group of another name does; they are suggested.
MEANT: Mapping[str, str] = {
    "memory": "blocks",
    "block": "blocks",
    "agent": "agents",
    "conversations": "messages",
    "history": "messages",
    "archives": "passages",
    "usage": "quotas",
    "log": "logs",
    "settings": "config",
    "start": "server start",
    "stop": "server stop",
    "restart": "server restart",
}
_CLOSE = 0.7
_EXTRA = "Got unexpected extra argument"
_NUMBERS = {"int": "a whole number", "float": "a number"}


class Commands(typer.Typer):
    """A group of commands; each command gets the help and the errors of this module."""

    def command(self, name: str | None = None, *, cls: Any = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, cls=cls or Command, **options)


class Command(TyperCommand):
    """A command."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _make_plain(self.params)

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, with `--help` and those for completion, which typer adds later."""
        return _make_plain(super().get_params(ctx))

    def get_short_help_str(self, limit: int = 0) -> str:
        """The first paragraph of the help, never cut; the list of commands wraps it."""
        return _first_paragraph(self.help)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises TyperException in plain words, with the command that it is about."""
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            error.message = _plain_words(error) or error.message
            error.ctx = getattr(error, "ctx", None) or ctx  # type: ignore[attr-defined]
            raise


class Group(TyperGroup):
    """A group of commands, with synonyms and suggestions."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _make_plain(self.params)

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, with `--help` and those for completion, which typer adds later."""
        return _make_plain(super().get_params(ctx))

    def get_short_help_str(self, limit: int = 0) -> str:
        """The first paragraph of the help, never cut."""
        return _first_paragraph(self.help)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without arguments it shows its help and exits as for an invalid command line."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            if shown := ctx.get_help():  # at a terminal, rich has printed it already
                typer.echo(shown, err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or the one that a synonym stands for."""
        names = (cmd_name, *SYNONYMS.get(cmd_name, ()))
        return next((self.commands[name] for name in names if name in self.commands), None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises UsageError with the command that was probably meant; typer's own suggestions are too far off."""
        typed = args[0] if args else ""
        if not ctx.resilient_parsing and not typed.startswith("-") and self.get_command(ctx, typed) is None:
            near = self._meant(typed)
            ctx.fail(f"No such command '{typed}'." + (f" Did you mean '{near}'?" if near else ""))
        return super().resolve_command(ctx, args)

    def _meant(self, typed: str) -> str | None:
        if MEANT.get(typed, " ").partition(" ")[0] in self.commands:
            return MEANT[typed]
        return next(iter(difflib.get_close_matches(typed, self.commands, 1, _CLOSE)), None)


class _PlainArgument(TyperArgument):
    """An argument whose help shows its name only, in capitals."""

    def display_type_rich(self, ctx: Any) -> str | None:
        return None

    def _usage_display_name(self) -> str:
        name = self.display_name_raw + ("..." if self.nargs != 1 else "")
        return name if self.required else f"[{name}]"


class _PlainOption(TyperOption):
    """An option whose help shows a placeholder instead of a type; a flag takes no value and shows none."""

    def display_type_rich(self, ctx: Any) -> str | None:
        return None if self.is_flag else self.metavar


def usage_error(error: typer.TyperException) -> str:
    """An error about what was typed, as one line with the command that shows the help."""
    asked = getattr(error, "ctx", None)
    told = _unknown_option(error, asked) or error.format_message().strip().removeprefix("Invalid value: ")
    if told.startswith(_EXTRA):
        told = f"Too many arguments: {told.partition(' (')[2].rstrip('.)')}"
    end = "" if told.endswith(("?", ".")) else "."
    return f"{told}{end} See `{asked.command_path if asked else 'kelpie'} --help`."


def _unknown_option(error: typer.TyperException, asked: Any) -> str | None:
    """The option that does not exist, and the one that was probably meant; None for other errors."""
    if not hasattr(error, "possibilities"):
        return None
    typed = str(getattr(error, "option_name", ""))[:80]
    known = {name.lstrip("-"): name for each in (asked.command.params if asked else ()) for name in each.opts}
    near = difflib.get_close_matches(typed.lstrip("-"), known, 1, _CLOSE)
    return f"No such option '{typed}'." + (f" Did you mean '{known[near[0]]}'?" if near else "")


def _make_plain(params: list[Any]) -> list[Any]:
    """Replaces the types in the help of these parameters, which typer has built already."""
    for each in params:
        if isinstance(each, TyperArgument):
            each.metavar = each.metavar or each.name.upper()
            each.__class__ = _PlainArgument
        elif isinstance(each, TyperOption):
            each.metavar = each.metavar or _placeholder(each)
            each.__class__ = _PlainOption
    return params


def _placeholder(option: TyperOption) -> str:
    described = option.type_descriptor
    if described.is_choice:
        return "|".join(str(getattr(choice, "value", choice)) for choice in described.choices or ())
    if described.annotation in (int, float):
        return "NUMBER"
    return max((name for name in option.opts), key=len).lstrip("-").rpartition("-")[2].upper()


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


def _plain_words(error: typer.TyperException) -> str | None:
    """The error of the validator in plain words; None for an error of another origin."""
    told = getattr(error.__cause__, "errors", None)
    first: Mapping[str, Any] | None = next(iter(told()), None) if told else None
    if first is None:
        return None
    kind, given, limits = str(first["type"]), str(first["input"])[:80], first.get("ctx", {})
    number = _NUMBERS.get(kind.partition("_")[0])
    if number is not None:
        return f"'{given}' is not {number}."
    if kind in ("greater_than_equal", "greater_than"):
        return f"{given} is too small; use at least {next(iter(limits.values()))}."
    if kind in ("less_than_equal", "less_than"):
        return f"{given} is too large; use at most {next(iter(limits.values()))}."
    return str(first["msg"]).removeprefix("Value error, ")
