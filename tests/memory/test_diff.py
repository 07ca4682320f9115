"""The difference between texts: it leads from the one to the other, and its size and time are bounded."""

import subprocess
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kelpie.memory.diff import LINES_MAX, Hunk, hunks, unified

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "  x", "- y", "+ z", "@@"]), max_size=30).map("\n".join)


def applied(before: str, found: list[Hunk]) -> str:
    """The text that the hunks lead to, with every line that they claim checked."""
    old, new, at = before.split("\n") if before else [], list[str](), 0
    for hunk in found:
        new += old[at : hunk.from_line - 1]
        assert len(new) == hunk.to_line - 1
        at = hunk.from_line - 1
        for line in hunk.lines:
            if line.kind != "added":
                assert old[at] == line.text
                at += 1
            if line.kind != "removed":
                new.append(line.text)
        assert at == hunk.from_line - 1 + hunk.from_count
        assert len(new) == hunk.to_line - 1 + hunk.to_count
    return "\n".join([*new, *old[at:]])


@given(TEXTS, TEXTS)
def test_it_leads_from_the_one_to_the_other(before: str, after: str) -> None:
    found = hunks(before, after)
    assert applied(before, found) == after
    assert (found == []) == (before == after)


@given(TEXTS, TEXTS)
def test_hunks_are_apart_and_show_a_little_of_what_is_around(before: str, after: str) -> None:
    for hunk in hunks(before, after):
        kinds = [line.kind for line in hunk.lines]
        assert any(kind != "same" for kind in kinds)
        assert kinds[:4] != ["same"] * 4 and kinds[-4:] != ["same"] * 4
    ends = [(hunk.from_line, hunk.from_line + hunk.from_count) for hunk in hunks(before, after)]
    assert all(one[1] <= other[0] for one, other in pairwise(ends))


def test_the_unified_form() -> None:
    before = "\n".join(f"line {n}" for n in range(1, 21))
    after = before.replace("line 2\n", "line 2\nnew\n").replace("line 18\n", "")
    assert unified(hunks(before, after), "old", "new") == (
        "--- old\n+++ new\n"
        "@@ -1,5 +1,6 @@\n line 1\n line 2\n+new\n line 3\n line 4\n line 5\n"
        "@@ -15,6 +16,5 @@\n line 15\n line 16\n line 17\n-line 18\n line 19\n line 20\n"
    )
    assert unified([], "old", "new") == ""
    assert "@@ -0,0 +1 @@\n+x\n" in unified(hunks("", "x"), "old", "new")


def test_patch_understands_it(tmp_path: Path) -> None:
    before = "\n".join(f"line {n % 7}" for n in range(60))
    after = before.replace("line 3\n", "", 2) + "\nmore"
    text, end = tmp_path / "text", "\n"
    text.write_text(before + end)
    patch = unified(hunks(before, after), "text", "text")
    done = subprocess.run(["git", "apply", "-p0", "-"], input=patch, cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert text.read_text() == after + end


def test_what_is_too_long_to_compare_is_told_as_a_whole() -> None:
    before = "\n".join(f"x{n % 3}" for n in range(LINES_MAX + 1))
    after = "\n".join(f"x{n % 2}" for n in range(LINES_MAX + 2))
    (found,) = hunks(f"same\n{before}\nsame", f"same\n{after}\nsame")
    assert applied(f"same\n{before}\nsame", [found]) == f"same\n{after}\nsame"
    far = "\n".join(["same"] * 100_000)
    (found,) = hunks(f"{far}\nx\n{far}", f"{far}\ny\n{far}")
    assert len(found.lines) == 8, "what is equal around a change costs nothing"
