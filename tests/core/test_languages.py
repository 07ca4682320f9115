"""Telling a language from code."""

import pytest

from kelpie.core.tools.languages import Language, detect


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("print(1 + 1)", "python"),
        ("import os\nfor name in os.listdir():\n    print(name)", "python"),
        ("def f(x: int) -> int:\n    return x\nprint(f(2))", "python"),
        ("1 + 1", "python"),
        ("", "python"),
        ("console.log([1, 2].map(x => x * 2))", "js"),
        ("const fs = require('fs');\nconsole.log(fs.readdirSync('.'))", "js"),
        ("function f(a) { return a === 1 }\nf(1)", "js"),
        ("import fs from 'node:fs'\nlet x = 1", "js"),
        ("const x: number = 1; console.log(x)", "ts"),
        ("interface Point { x: number }\nconst p = { x: 1 }\nconsole.log(p)", "ts"),
        ("function f(a: string): string { return a }\nconsole.log(f('x'))", "ts"),
        ("type Name = string\nconsole.log(1 as unknown)", "ts"),
        ("x <- c(1, 2)\nprint(mean(x))", "r"),
        ("library(stats)\ncat(paste0('a', 'b'))", "r"),
        ('public class Main { public static void main(String[] a) { System.out.println("hi"); } }', "java"),
        ("import java.util.List;\nclass A { static void main(String[] a) { } }", "java"),
    ],
)
def test_the_language_is_told_from_what_is_typical(code: str, language: str) -> None:
    assert detect(code) is Language(language)


def test_code_that_is_hostile_to_parsers_is_told_all_the_same() -> None:
    for code in ("print(" * 5000, "\0print(1)", "def f():\n" + "(" * 100_000, "-" * 100_000, "=> " * 50_000):
        assert detect(code) in Language
