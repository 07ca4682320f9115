"""Reading one string field of a JSON object while the object is still being written."""

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class StringField:
    """Takes fragments of an object's text and returns what is new of one top-level string field."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._depth = 0
        self._in_string = False
        self._is_key = False
        self._watching = False
        self._expects_value = False
        self._text: list[str] = []  # the key being read
        self._key = ""
        self._escape = ""  # a started escape sequence
        self._high = 0  # the first half of a surrogate pair

    def feed(self, fragment: str) -> str:
        """The characters of the field that this fragment added."""
        given: list[str] = []
        for char in fragment:
            if self._in_string:
                self._string_char(char, given)
            else:
                self._structure_char(char)
        return "".join(given)

    def _structure_char(self, char: str) -> None:
        if char == '"':
            self._in_string = True
            self._is_key = self._depth == 1 and not self._expects_value
            self._watching = self._depth == 1 and self._expects_value and self._key == self._name
            self._text = []
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self._expects_value = self._expects_value and self._depth > 1
        elif self._depth == 1 and char == ":":
            self._expects_value = True
        elif self._depth == 1 and char == ",":
            self._expects_value = False

    def _string_char(self, char: str, given: list[str]) -> None:
        if self._escape:
            self._escaped(char, given)
        elif char == "\\":
            self._escape = "\\"
        elif char == '"':
            self._in_string = False
            if self._is_key:
                self._key = "".join(self._text)
        else:
            self._give(char, given)

    def _escaped(self, char: str, given: list[str]) -> None:
        self._escape += char
        if self._escape[1] != "u":
            self._give(_ESCAPES.get(char, char), given)
            self._escape = ""
        elif len(self._escape) == 6:
            self._unicode(self._escape[2:], given)
            self._escape = ""

    def _unicode(self, digits: str, given: list[str]) -> None:
        try:
            code = int(digits, 16)
        except ValueError:
            return  # broken JSON: the committed message has the text
        if 0xD800 <= code < 0xDC00:
            self._high = code
        elif 0xDC00 <= code < 0xE000:
            if self._high:
                self._give(chr(0x10000 + ((self._high - 0xD800) << 10) + (code - 0xDC00)), given)
            self._high = 0
        else:
            self._give(chr(code), given)

    def _give(self, char: str, given: list[str]) -> None:
        if self._is_key:
            self._text.append(char)
        elif self._watching:
            given.append(char)
