"""Lists of patterns and limits: what they say of a tool, what they refuse, and that no layer widens another."""

from dataclasses import replace

import pytest

from kelpie.core.errors import ConfigurationError, InvalidInput
from kelpie.core.permissions.policies import NO_POLICY, OPEN, Layer, Policy, warrant
from kelpie.core.permissions.quotas import Quota, QuotaUse, hour_after, hour_of
from kelpie.core.permissions.tool_permissions import Capability, Subject, ToolKind, ToolPatterns, check_patterns
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.confinement import DEFAULT_CONFINEMENT, MEGABYTE

VOICE = Subject("send_message", ToolKind.builtin)
MEMORY = Subject("memory_insert", ToolKind.builtin, (Capability.memory,))
SHELL = Subject("shell", ToolKind.builtin, (Capability.code, Capability.filesystem))
CUSTOM = Subject("fetch_rates", ToolKind.custom, (Capability.code, Capability.network))
CLIENT = Subject("open_door", ToolKind.client)
ALL = (VOICE, MEMORY, SHELL, CUSTOM, CLIENT)


def passes(permits: ToolPatterns) -> list[str]:
    return [subject.name for subject in ALL if permits.refusal(subject) is None]


@pytest.mark.parametrize(
    ("allow", "deny", "left"),
    [
        (None, (), ["send_message", "memory_insert", "shell", "fetch_rates", "open_door"]),
        (None, ("*",), ["send_message"]),
        ((), (), ["send_message"]),
        (("memory_*",), (), ["send_message", "memory_insert"]),
        (("*",), ("memory_*", "sh?ll"), ["send_message", "fetch_rates", "open_door"]),
        (None, ("[a-f]*",), ["send_message", "memory_insert", "shell", "open_door"]),
        (None, ("kind:custom",), ["send_message", "memory_insert", "shell", "open_door"]),
        (("kind:c*",), (), ["send_message", "fetch_rates", "open_door"]),
        (None, ("capability:code",), ["send_message", "memory_insert", "open_door"]),
        (("capability:code",), (), ["send_message"]),  # both that run code reach more than that
        (("capability:code", "capability:filesystem"), (), ["send_message", "shell"]),
        (("capability:*",), ("capability:network",), ["send_message", "memory_insert", "shell"]),
        (("shell",), ("shell",), ["send_message"]),
        (("SHELL", "memory"), (), ["send_message"]),  # the whole name, and as it is written
    ],
)
def test_what_lists_leave(allow, deny, left):
    assert passes(ToolPatterns(allow, deny)) == left


def test_a_refusal_names_the_pattern():
    assert "'capability:code'" in (ToolPatterns(None, ("memory_*", "capability:code")).refusal(SHELL) or "")
    assert "allowed tools" in (ToolPatterns(("memory_*",)).refusal(SHELL) or "")


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a b",
        "shell;rm",
        "kind:",
        "kind:robot",
        "capability:flight",
        "type:custom",
        "x" * 201,
        "ümlaut",
        "a\nb",
        "[",
        "sh[ell",
        "a]",
        "a!",
    ],
)
def test_what_is_no_pattern(pattern: str):
    with pytest.raises(InvalidInput, match=r"^deny: "):
        check_patterns("deny", ["memory_*", pattern])


def test_lists_are_bounded_and_say_nothing_twice():
    assert check_patterns("allow", ["a*", "b", "a*"]) == ("a*", "b")
    with pytest.raises(InvalidInput, match="the limit is 200"):
        check_patterns("allow", [f"t{n}" for n in range(201)])


def test_a_bracket_that_is_never_closed_is_a_letter():
    assert ToolPatterns(None, ("[",)).refusal(SHELL) is None


def test_every_layer_must_agree():
    server = Policy(ToolPatterns(None, ("capability:network",)), Quota(tool_calls=10))
    organization = Policy(ToolPatterns(("kind:builtin", "kind:custom")), Quota(tool_calls=50, tokens=5))
    held = warrant(server, organization, ToolPatterns(("*",)), Quota(tool_calls=999, cpu_us=7, tokens=9))
    assert held.quota == Quota(10, 5, 7, None)
    for subject, layer in ((CUSTOM, Layer.server), (CLIENT, Layer.organization)):
        refusal = held.refusal(subject)
        assert refusal is not None and refusal.layer is layer and f"'{subject.name}' was not run" in refusal.told
    assert held.refusal(SHELL) is None and not held.bars(SHELL)
    assert warrant(NO_POLICY, NO_POLICY, None, None) is OPEN
    assert warrant(NO_POLICY, NO_POLICY, ToolPatterns(), Quota()) is OPEN


def test_limits_refuse_what_they_count():
    held = warrant(NO_POLICY, NO_POLICY, None, Quota(tool_calls=2, cpu_us=5_000_000))
    assert held.refusal(SHELL, before=1) is None
    refusal = held.refusal(SHELL, before=2)
    assert refusal is not None and refusal.layer is None and "2 tool calls" in refusal.told and "1970" in refusal.told
    assert held.refusal(VOICE, before=2) is None  # whoever has used up everything can still answer
    assert not held.bars(SHELL)
    busy = type(held)(held.layers, held.quota, QuotaUse(cpu_us=5_000_000))
    refusal = busy.refusal(MEMORY)
    assert refusal is not None and "5 s of processor time" in refusal.told


def test_what_holds_for_one_call_narrows_and_never_widens():
    assert Quota(memory_bytes=64 * MEGABYTE).confined(DEFAULT_CONFINEMENT).memory_bytes == 64 * MEGABYTE
    tight = Quota(wall_s=2.5, cpu_share=0.5, processes=3, output_bytes=1000, memory_bytes=4096 * MEGABYTE)
    assert tight.confined(DEFAULT_CONFINEMENT) == replace(
        DEFAULT_CONFINEMENT, wall_s=2.5, cpu_share=0.5, processes=3, output_bytes=1000
    )
    assert tight.within(Quota(wall_s=1, processes=9, tokens=5)) == replace(tight, wall_s=1, tokens=5)
    assert Quota(memory_bytes=4096 * MEGABYTE).confined(DEFAULT_CONFINEMENT) is DEFAULT_CONFINEMENT
    assert Quota().confined(DEFAULT_CONFINEMENT) is DEFAULT_CONFINEMENT


def test_hours_are_those_of_the_clock():
    now = 7 * 3600_000_000 + 123
    assert (hour_of(now), hour_after(now)) == (7 * 3600_000_000, 8 * 3600_000_000)


def test_the_settings_of_a_server():
    usual = Settings().policy
    assert usual.open and usual.permits == NO_POLICY.permits, "what holds for one call needs no counting"
    assert warrant(usual, NO_POLICY, None, None) is warrant(usual, NO_POLICY, None, None)
    env = {
        "KELPIE_TOOLS_ALLOW": "memory_*, kind:custom",
        "KELPIE_TOOLS_DENY": "capability:network",
        "KELPIE_TOOL_CALLS_PER_HOUR": "100",
        "KELPIE_CPU_SECONDS_PER_HOUR": "1.5",
        "KELPIE_TOKENS_PER_HOUR": "1000",
        "KELPIE_TOOL_MEMORY_MB": "128",
    }
    found = Settings.from_environment(env).policy
    assert found.permits == ToolPatterns(("memory_*", "kind:custom"), ("capability:network",))
    assert found.quota == replace(
        usual.quota, tool_calls=100, tokens=1000, cpu_us=1_500_000, memory_bytes=128 * MEGABYTE
    )
    with pytest.raises(ConfigurationError, match=r"KELPIE_TOOLS_DENY: 'capability:flight'"):
        Settings.from_environment({"KELPIE_TOOLS_DENY": "capability:flight"})
