"""Stemmer for English words, by Porter's algorithm of 1980: `searching` and `searched` are one word.

It is the same that SQLite's text index uses, which a test compares it with. Words with other letters than a to z are
returned unchanged.
"""

import re
from collections.abc import Mapping

SHORTEST, LONGEST = 3, 64  # letters; words outside have no ending to remove

_LETTERS = re.compile("[a-z]+")
_STEPS_2: Mapping[str, str] = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "logi": "log", "bli": "ble",
    "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate",
    "alism": "al", "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive",
    "biliti": "ble",
}  # fmt: skip
_STEPS_3: Mapping[str, str] = {
    "icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": "",
}  # fmt: skip
_STEPS_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


def stem(word: str) -> str:
    """The word without its ending; it must be in lower case."""
    if not SHORTEST <= len(word) <= LONGEST or not _LETTERS.fullmatch(word):
        return word
    word = _without_y(_without_past(_without_plural(word)))
    word = _shortened(word, _STEPS_2)
    word = _shortened(word, _STEPS_3)
    return _without_last(_without_ending(word))


def _sounds(word: str) -> str:
    """A word as v's and c's: vowels and consonants. A y after a consonant is a vowel."""
    found = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and found.endswith("c"))
        found += "v" if vowel else "c"
    return found


def _measure(word: str) -> int:
    """Number of vowel-consonant sequences in it."""
    return _sounds(word).count("vc")


def _has_vowel(word: str) -> bool:
    return "v" in _sounds(word)


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _sounds(word)[-1] == "c"


def _ends_short(word: str) -> bool:
    """Checks whether it ends as in `hop`: consonant, vowel, consonant, and the last is none of w, x and y."""
    return _sounds(word)[-3:] == "cvc" and word[-1] not in "wxy"


def _without_plural(word: str) -> str:
    if (word.endswith("sses") and len(word) > 4) or (word.endswith("ies") and len(word) > 3):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _without_past(word: str) -> str:
    if word.endswith("eed") and len(word) > 3:
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        rest = word.removesuffix(ending)
        if rest != word:
            return _repaired(rest) if _has_vowel(rest) else word
    return word


def _repaired(rest: str) -> str:
    """A word that has lost an -ed or -ing, with the spelling it has without one."""
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _ends_double(rest) and rest[-1] not in "lsz":
        return rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _ends_short(rest) else rest


def _without_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and _has_vowel(word[:-1]) else word


def _shortened(word: str, endings: Mapping[str, str]) -> str:
    for length in range(7, 2, -1):  # the longest that fits decides
        if (ending := word[-length:]) in endings and len(word) > length:
            rest = word[:-length]
            return rest + endings[ending] if _measure(rest) > 0 else word
    return word


def _without_ending(word: str) -> str:
    for ending in sorted(_STEPS_4, key=len, reverse=True):
        if word.endswith(ending):
            rest = word.removesuffix(ending)
            lost = _measure(rest) > 1 and (ending != "ion" or rest.endswith(("s", "t")))
            return rest if lost else word
    return word


def _without_last(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _ends_short(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
