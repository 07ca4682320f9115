"""JSON that stays in memory takes no more of it than its length."""

import tracemalloc

from kelpie.llm.wire.json_bytes import kept

MANY = 200


def test_what_is_kept_has_no_spare_room() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = [kept([{"role": "user", "content": f"hello {number}"}]) for number in range(MANY)]
        each = (tracemalloc.get_traced_memory()[0] - before) / MANY
    finally:
        tracemalloc.stop()
    assert found[7] == b'{"role":"user","content":"hello 7"}'
    assert each < 200


def test_several_values_are_separated_and_none_are_nothing() -> None:
    assert kept([1, {"a": "b"}]) == b'1,{"a":"b"}'
    assert kept([]) == b""
