"""Context of one conversation, the messages that the model sees: each is encoded once and weighed once.

Weights are bytes. The number of tokens is estimated, by a scale that the provider's own count corrects. Memory is
bounded: of a context that is longer than any prompt only the newest part is read and kept.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice

from kelpie.agent.prompt.agent_types import TypeSpec, spec_for
from kelpie.agent.prompt.rendering import prepare
from kelpie.agent.prompt.transcript import clipped
from kelpie.agent.prompt.wellformed_history import healed, weight
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import Message, Role
from kelpie.core.token_estimates import BYTES_PER_TOKEN, tokens_in
from kelpie.llm.provider.interface import EncodedBeginning, PreparedHistory, PreparedMessage
from kelpie.storage.conversations import approvals, contexts
from kelpie.world.database import Tx

ENTRY_BYTES = 1_200  # of the objects of one message, beside its text; measured
CONTEXT_ROWS_MAX = 5_000  # of one conversation; twice as many before the older half is let go
PAGE_ROWS = 500
_WINDOWS_READ = 4  # how many windows full of history are read at most
_SCALE_MIN, _SCALE_MAX = 0.8, 8.0
_RESULT_SHARE = 0.2  # of what fits: the most that one result is shown when nothing else helps
_RESULT_CHARS_MIN = 1_000


class Context:
    __slots__ = ("_encoded", "_pictures", "_weights", "damaged", "entries", "pending", "scale")

    def __init__(
        self, entries: Sequence[PreparedMessage], pending: PendingCalls | None = None, scale: float = 1.0
    ) -> None:
        self.entries: list[PreparedMessage] = []
        self.pending = pending  # what it waits for
        self.damaged = False  # the stored rows had to be repaired for the prompt
        self.scale = scale  # tokens as the provider counts them, to one that is estimated
        self._weights: list[int] = []  # of the entries up to and with each
        self._encoded: dict[str, EncodedBeginning] = {}  # the entries as they were last sent, by wire format
        self._pictures = 0  # of all entries
        self._add(entries)

    def extend(self, new: Sequence[Message], spec: TypeSpec) -> None:
        self._add([prepare(message, spec) for message in new if not message.answers])
        if len(self.entries) > 2 * CONTEXT_ROWS_MAX:
            self._let_go()

    def _add(self, entries: Sequence[PreparedMessage]) -> None:
        self.entries += entries
        self._pictures += sum(entry.pictures for entry in entries)
        sums = accumulate((weight(entry.message) for entry in entries), initial=self.weight)
        self._weights += islice(sums, 1, None)

    def _let_go(self) -> None:
        """Drops the older half from memory, up to an input: it is longer than any prompt."""
        later = range(len(self.entries) - CONTEXT_ROWS_MAX, len(self.entries))
        start = next((i for i in later if self.entries[i].message.role is Role.user), later[0])
        kept = self.entries[start:]
        self.entries, self._weights, self._encoded, self._pictures = [], [], {}, 0
        self._add(kept)

    @property
    def bytes(self) -> int:
        """Approximate memory of the entries, and of what is kept of them as they were sent."""
        sent = sum(len(each.closed) for each in self._encoded.values())
        return len(self.entries) * ENTRY_BYTES + 2 * self.weight + sent

    @property
    def weight(self) -> int:
        """Weight of all entries together."""
        return self._weights[-1] if self._weights else 0

    def tokens(self, weight: int) -> int:
        """About how many tokens so many bytes are for this model."""
        return int(tokens_in(weight) * self.scale)

    def bytes_in(self, tokens: float) -> int:
        """About how many bytes so many tokens are for this model."""
        return int(tokens * BYTES_PER_TOKEN / self.scale)

    def counted(self, weight: int, tokens: int) -> None:
        """Corrects the scale by a provider's count of tokens; providers that do not count give 0."""
        if tokens > 0 and weight > 0:
            self.scale = min(max(tokens / tokens_in(weight), _SCALE_MIN), _SCALE_MAX)

    def refused(self, weight: int, window: int) -> None:
        """Learns that so many bytes did not fit a window, whatever was estimated."""
        self.scale = min(max(self.scale * 1.25, window / max(tokens_in(weight), 1)), _SCALE_MAX)

    def within(self, weight_max: int) -> list[PreparedMessage]:
        """The entries, or the newest of them that fit, beginning with a message of the user.

        However little fits, the user's last message and what followed it are there; long results lose their middle.
        """
        if self.weight <= weight_max:
            return self.entries[:] if self._pictures else PreparedHistory(self.entries, self._encoded)
        first = bisect_left(self._weights, self.weight - weight_max) + 1
        later, earlier = range(first, len(self.entries)), range(first - 1, -1, -1)
        start = next((i for i in chain(later, earlier) if self.entries[i].message.role is Role.user), 0)
        shown = self.entries[start:]
        if sum(weight(entry.message) for entry in shown) <= weight_max:
            return shown
        return [_shortened(entry, max(int(weight_max * _RESULT_SHARE), _RESULT_CHARS_MIN)) for entry in shown]

    def entries_of(self, wanted: Sequence[Message]) -> list[PreparedMessage]:
        """The entries of these messages."""
        ids = {id(message) for message in wanted}
        return [entry for entry in self.entries if id(entry.message) in ids]

    def compacted(self, summary: PreparedMessage, kept: Sequence[Message]) -> "Context":
        """The context after a compaction: a summary and the entries of these messages."""
        return Context([summary, *self.entries_of(kept)], self.pending, self.scale)


def _shortened(entry: PreparedMessage, chars_max: int) -> PreparedMessage:
    results = entry.message.tool_returns
    if all(len(result.text) <= chars_max for result in results):
        return entry
    cut = tuple(replace(result, text=clipped(result.text, chars_max)) for result in results)
    return PreparedMessage(replace(entry.message, tool_returns=cut))


def load_context(tx: Tx, agent: Agent, conversation: str) -> Context:
    """Reads the newest part of a context; what stands before it would not fit into a prompt anyway."""
    spec, enough = spec_for(agent), agent.model.context_window * BYTES_PER_TOKEN * _WINDOWS_READ
    found: list[Message] = []
    for page in contexts.pages(tx, agent.id, conversation, PAGE_ROWS):
        found[:0] = page
        enough -= sum(map(weight, page))
        if enough < 0 or len(found) >= CONTEXT_ROWS_MAX:
            break
    said = found[1:] if found and found[0].role is Role.system else found
    pending = approvals.get(tx, agent.id, conversation)
    shown = healed(said, pending.request if pending else None)
    context = Context([prepare(m, spec) for m in shown], pending)
    context.damaged = said is not found and shown != [m for m in said if not m.answers]  # if all of it was read
    if pending and (not shown or shown[-1].id != pending.request):
        context.damaged = True  # no client could answer that request
    return context
