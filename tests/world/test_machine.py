"""This machine: its memory is what a container leaves of it."""

from pathlib import Path

from kelpie.world import machine


def test_a_container_may_have_less_memory_than_its_machine(tmp_path: Path) -> None:
    whole = machine.memory_bytes(())
    assert whole > 64 * 1024**2
    for text, expected in (
        ("max\n", whole),
        (f"{2**62}\n", whole),
        ("33554432\n", 33554432),
        ("", whole),
        ("0", whole),
    ):
        (tmp_path / "limit").write_text(text)
        assert machine.memory_bytes((tmp_path / "missing", tmp_path / "limit")) == expected
