"""Line breaks between words for a text that arrives in pieces. A word is held back until it is complete."""

from kelpie.cli.display.table import text_width

HELD_MAX = 60  # characters of a word that is held back; a longer one, such as an address, is written as it arrives


class WordWrap:
    """Lays out one text for a terminal of a width; `column` is where the text begins."""

    def __init__(self, width: int, column: int = 0) -> None:
        self._width = width
        self._column = column
        self._spaces = 0  # before the word, not written yet
        self._word = ""
        self._continues = False  # the word began with a part that is written already

    def add(self, text: str) -> str:
        """What can be written after this piece."""
        return "".join(self._character(character) for character in text)

    def rest(self) -> str:
        """The last word, which nothing follows."""
        return self._placed()

    def _character(self, character: str) -> str:
        if character == "\n":
            placed = self._placed()
            self._column, self._spaces, self._continues = 0, 0, False
            return f"{placed}\n"
        if character == " ":
            placed = self._placed()
            self._spaces, self._continues = self._spaces + 1, False
            return placed
        wide = text_width(character) > 1  # lines of such scripts break between any two characters
        placed = self._placed() if wide else ""
        self._word += character
        if wide:
            self._continues = False
            return placed + self._placed()
        if not self._continues and len(self._word) < HELD_MAX:
            return placed
        placed = self._placed()
        self._continues = True
        return placed

    def _placed(self) -> str:
        """The word after its spaces, or at the start of the next line if it does not fit in this one."""
        if not self._word:
            return ""
        needed = text_width(self._word)
        before = " " * self._spaces
        if not self._continues and self._column > 0 and self._column + self._spaces + needed > self._width:
            before, self._column, self._spaces = "\n", 0, 0
        self._column = (self._column + self._spaces + needed - 1) % self._width + 1
        placed, self._word, self._spaces = before + self._word, "", 0
        return placed
