"""The languages in which code can be run, and detection of the language of a piece of code. Pure.

Detection is a guess from typical syntax: the answer names the detected language, and a caller can name the language
instead.
"""

import ast
import re
from enum import StrEnum


class Language(StrEnum):
    python = "python"
    js = "js"
    ts = "ts"
    r = "r"
    java = "java"


_JAVA = re.compile(
    r"\b(public|final|abstract)\s+(class|interface|enum|record)\s+\w|\bstatic\s+void\s+main\s*\(|\bSystem\.out\.print|"
    r"^\s*import\s+java[.x]",
    re.MULTILINE,
)
_ASSIGNED = re.compile(r"^\s*[\w.]+\s*<-\s", re.MULTILINE)
_R = re.compile(r"\b(library|suppressMessages)\(\w+\)|\bpaste0?\(|\bdata\.frame\(|%>%", re.MULTILINE)
_TYPED = re.compile(
    r"^\s*(export\s+)?(interface\s+\w+[^({]*\{|type\s+\w+(<[^>]*>)?\s*=|enum\s+\w+\s*\{)|"
    r"\b(const|let|var)\s+\w+\s*:\s*[\w<\[{(]|[(,]\s*\w+\??\s*:\s*(string|number|boolean|any|unknown|\w+\[\])\b|"
    r"\)\s*:\s*(string|number|boolean|void|any|unknown|Promise<)|\bas\s+(const|string|number|any|unknown)\b",
    re.MULTILINE,
)
_SCRIPT = re.compile(
    r"\bconsole\.\w+\(|^\s*(const|let|var)\s+[\w{\[]|=>\s*[\w({\[]|^\s*(async\s+)?function\s*\w*\s*\(|"
    r"\brequire\(\s*['\"]|^\s*(import|export)\s+.*\bfrom\s+['\"]|===|\bprocess\.\w+|\bJSON\.\w+\(",
    re.MULTILINE,
)
_PYTHON = re.compile(
    r"^\s*(def|class)\s+\w+.*:\s*(#.*)?$|^\s*(import\s+[\w.]+(\s+as\s+\w+)?|from\s+[\w.]+\s+import\s.+)\s*$|\bprint\(|"
    r"^\s*(for|while|if|with|try|elif|else)\b.*:\s*(#.*)?$",
    re.MULTILINE,
)


def detect(code: str) -> Language:
    """The language that the code is most likely written in; Python if nothing indicates another."""
    if _ASSIGNED.search(code):  # Python would parse it as a comparison without effect
        return Language.r
    if _PYTHON.search(code) and _is_python(code):
        return Language.python
    if _JAVA.search(code):
        return Language.java
    if _SCRIPT.search(code) or _TYPED.search(code):
        return Language.ts if _TYPED.search(code) else Language.js
    return Language.r if _R.search(code) else Language.python


def _is_python(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
