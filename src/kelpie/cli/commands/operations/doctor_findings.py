"""The doctor's findings: problems first, then warnings, then what is in order, and the verdict at the end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kelpie.cli.commands.models import problem_of
from kelpie.cli.output import say

DETAILS = "`kelpie doctor -v` shows the details."
DEMO = "kelpie"  # the provider of the scripted model


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to act on. A problem makes the command fail, a warning does not."""

    section: str
    problem: bool
    text: str


def findings_of(told: dict[str, Any]) -> Sequence[Finding]:
    """All findings of a report, problems first; an error in the settings is the first of them."""
    found = [*_settings(told["settings"]), *_server(told["server"]), *_data(told), *_machine(told)]
    return sorted(found, key=lambda each: not each.problem)


def verdict(findings: Sequence[Finding]) -> str:
    """One sentence that counts the findings."""
    problems = sum(each.problem for each in findings)
    warnings = len(findings) - problems
    if not findings:
        return "No problems found."
    counted = [_counted(problems, "problem") if problems else "No problems"]
    counted += [_counted(warnings, "warning")] if warnings else []
    return f"{', '.join(counted)}."


def print_findings(told: dict[str, Any], findings: Sequence[Finding]) -> None:
    """Prints the findings, and a line for each section without one."""
    for each in findings:
        say(f"{'problem' if each.problem else 'warning'}  {each.section}: {each.text}")
    touched = {each.section for each in findings}
    if findings:
        say()
    for section, text in _in_order(told):
        if section not in touched:
            say(f"ok       {section}: {text}")


def print_verdict(findings: Sequence[Finding], *, verbose: bool) -> None:
    say(f"\n{verdict(findings)}" + ("" if verbose else f" {DETAILS}"))


def _settings(told: dict[str, Any]) -> Iterator[Finding]:
    if told["error"]:
        yield Finding("settings", True, told["error"])
    for text in told["unknown"]:
        yield Finding("settings", False, text)
    if told["ignored"]:
        yield Finding("settings", False, f"Kelpie does not use {', '.join(told['ignored'])}")
    if told["other_than_running"]:
        changed = "; ".join(told["other_than_running"])
        remedy = "`kelpie server restart` applies the current ones"
        yield Finding("settings", False, f"the server runs with other settings: {changed}. {remedy}")


def _server(told: dict[str, Any]) -> Iterator[Finding]:
    if told["error"]:
        yield Finding("server", True, told["error"])
    if told["network_urls"]:
        urls = ", ".join(told["network_urls"])
        yield Finding("server", False, f"other machines reach it at {urls}, and connections are not encrypted")
    for each in told["providers"]:
        if each["error"]:
            yield Finding("models", True, f"{each['name']}: {problem_of(each)}")
    for each in told["shadowed_tools"]:
        replaced = f"the custom tool {each['name']} ({each['id']}) replaces a built-in tool"
        yield Finding("tools", False, f"{replaced}; {each['remedy']}")
    for each in told["mcp_servers"]:
        state = {"open": "is left alone", "half_open": "is tried again"}.get(each["breaker"], "fails")
        yield Finding("tools", False, f"the MCP server {each['server_name']} {state}: {each['last_error']}")
    embedding = told["embedding"]
    if embedding is not None and not embedding["model"]:
        yield Finding("search", False, f"memory search uses full text only: {embedding['remedy']}")


def _data(told: dict[str, Any]) -> Iterator[Finding]:
    stored = told["data"]
    if stored["error"]:
        if not told["server"]["error"]:
            yield Finding("data", False, f"stored data could not be checked: {stored['error'].rstrip('.')}")
        return
    for each in stored["rows"]:
        if each["damaged"]:
            first = ", ".join(each["ids"])
            yield Finding("data", True, f"{each['kind']}: {each['damaged']} damaged. {each['remedy']} First: {first}")
    for what, count in stored["wrongs"].items():
        yield Finding("data", True, f"{what}: {count}. {stored['remedy']}")


def _machine(told: dict[str, Any]) -> Iterator[Finding]:
    if told["isolation"]["sandbox"] is None:
        yield Finding("sandbox", False, told["isolation"]["note"])
    for each in told["packages"]:
        if each["remedy"]:
            yield Finding("packages", False, f"{each['index']}: {each['remedy']}")


def _in_order(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """One line for each section, for the case that it has no finding."""
    settings, server, stored = told["settings"], told["server"], told["data"]
    yield "settings", f"{len(settings['set'])} set; {settings['file'] or 'there is no kelpie.toml'}"
    if server["error"] is None:
        yield "server", f"Kelpie {server['version']} at {server['url']}"
        yield "models", _models(server)
    if stored["error"] is None:
        yield "data", f"no damage found in {sum(each['looked_at'] for each in stored['rows'])} rows"
    yield "sandbox", "tool code runs in process-level sandboxes"
    installers = " and ".join(dict.fromkeys(each["installer"] for each in told["packages"]))
    yield "packages", f"tools get theirs with {installers}"


def _models(server: dict[str, Any]) -> str:
    counts = {each["name"]: len(each["models"]) for each in server["providers"]}
    nearby = "".join(
        f"; {each['server']} answers at {each['url']}: set {each['setting']} to use it" for each in server["nearby"]
    )
    if set(counts) <= {DEMO}:
        return f"only the demo model, a script; `kelpie doctor -v` lists what to set for others{nearby}"
    found = {each["name"]: f", found at {each['endpoint']}" for each in server["providers"] if each.get("found")}
    return ", ".join(f"{count} of {name}{found.get(name, '')}" for name, count in counts.items()) + nearby


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
