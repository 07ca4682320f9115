"""`kelpie agents permissions`, `limits`, `calls` and `kelpie tools` against a real server."""

from tests.cli.live import Live


def test_what_an_agent_may_and_has_called(running: Live) -> None:
    running.json("agents", "create", "paul", "--model", "kelpie/demo", "--block", "human=")
    shown = running.json("agents", "permissions", "paul", "--deny", "memory_*", "--allow", "*")
    assert shown["kelpie_permissions"] == {"allow": ["*"], "deny": ["memory_*"]}
    plain = running.kelpie("agents", "permissions", "paul").stdout
    assert "*, except memory_*" in plain and "REFUSED BY" in plain
    running.kelpie("chat", "paul", "--message", "My name is Paul.")
    calls = running.json("agents", "calls", "paul")
    assert all(call["outcome"] == "refused" for call in calls if call["tool"].startswith("memory"))
    assert running.json("agents", "permissions", "paul", "--clear")["kelpie_permissions"] is None
    running.kelpie("chat", "paul", "--message", "My name is Paul.")
    (call, *_) = running.json("agents", "calls", "paul", "--outcome", "success")
    assert call["tool"] in running.kelpie("agents", "calls", "paul").stdout
    assert call["tool"] in running.kelpie("tools", "usage").stdout
    limits = running.json("agents", "limits", "paul", "--tool-calls", "7", "--cpu-seconds", "1.5")
    assert limits["limits"]["tool_calls_per_hour"] == 7 and limits["used"]["tool_calls"] >= 1
    assert "7 tool calls per hour, 1.5 CPU seconds per hour" in running.kelpie("agents", "limits", "paul").stdout
    assert running.json("agents", "limits", "paul", "--clear")["layers"]["agent"]["tool_calls_per_hour"] is None


def test_what_all_agents_may(running: Live) -> None:
    assert "all tools" in running.kelpie("tools", "policy").stdout
    set_to = running.json("tools", "policy", "--deny", "capability:network", "--tokens", "1000000")
    assert set_to["permissions"]["deny"] == ["capability:network"] and set_to["limits"]["tokens_per_hour"] == 1_000_000
    assert "conversation_search" in running.kelpie("tools", "list").stdout
    assert running.json("tools", "policy", "--clear")["permissions"] == {"allow": None, "deny": []}
    for arguments in (("policy", "--deny", "a b"), ("policy", "--clear", "--deny", "a")):
        done = running.kelpie("tools", *arguments)
        assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1
