"""Docstrings in the three styles people write them in."""

import pytest

from kelpie.tools.schema.docstrings import read

GOOGLE = """Do f.

    Long text.

    Args:
        a (Dict[str, Tuple(int)], optional): first line
            second line
        *rest: the others
        b: the b

    Returns:
        int: res

    Example:
        >>> f(1)
"""
NUMPY = """Do f.

    Long text.

    Parameters
    ----------
    a : dict of str
        first line
        second line
    *rest
        the others
    b, c : int, default 5
        the b

    Returns
    -------
    int
        res

    Examples
    --------
    >>> f(1)
"""
SPHINX = """Do f.

    Long text.

    :param dict a: first line
        second line
    :type a: dict
    :param *rest: the others
    :param b: the b
    :return: res
        over two lines
    :raises ValueError: never
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_styles(text: str) -> None:
    found = read(text)
    expected = {"a": "first line\nsecond line", "rest": "the others", "b": "the b"}
    assert {name: found.parameters[name] for name in expected} == expected
    assert found.description.startswith("Do f.\n\nLong text.")
    assert "res" not in found.description and "never" not in found.description
    assert (">>> f(1)" in found.description) is (text is not SPHINX)


def test_text_that_only_looks_like_a_section() -> None:
    text = "Uses :class:`Thing`.\n\n:mod:`x` is needed.\nNotes about it\n---\nArgs\n"
    assert read(text).parameters == {} and read(text).description == text.strip()


def test_attributes_and_keywords() -> None:
    found = read("D.\n\nAttributes:\n    x: the x\n\nKeyword Args:\n    y: the y\n")
    assert (found.attributes, found.parameters) == ({"x": "the x"}, {"y": "the y"})
