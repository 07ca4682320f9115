"""Search by words as it is meant: every text is looked at, and BM25 is computed as it is written in the books."""

import math
from collections import Counter
from dataclasses import dataclass, field

from kelpie.search.text import tokenizer
from kelpie.search.text.fulltext import Match


@dataclass
class Reference:
    texts: dict[str, str] = field(default_factory=dict[str, str])

    def holding(self, query: str) -> dict[str, bool]:
        """Which texts hold a word of the query, and whether they hold all."""
        asked = set(tokenizer.asked(query))
        held = {item: asked & set(tokenizer.numbers(text)) for item, text in self.texts.items()}
        return {item: found == asked for item, found in held.items() if found}

    def ranked(self, query: str, limit: int) -> list[Match]:
        asked, counts = (
            tokenizer.asked(query),
            {item: Counter(tokenizer.numbers(text)) for item, text in self.texts.items()},
        )
        average = sum(each.total() for each in counts.values()) / len(counts)
        found: list[Match] = []
        for item, whole in self.holding(query).items():
            score = 0.0
            for word in asked:
                number = sum(word in each for each in counts.values())
                often, rest = counts[item][word], 0.9 * (0.6 + 0.4 * counts[item].total() / average)
                score += math.log(1 + (len(counts) - number + 0.5) / (number + 0.5)) * 1.9 * often / (often + rest)
            found.append(Match(item, round(score, 4), whole))
        return sorted(found, key=lambda each: (not each.whole, -each.score))[:limit]
