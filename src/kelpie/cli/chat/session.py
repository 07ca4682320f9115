"""The session of a chat: one turn after the other, with the questions that a turn may end with."""

import shlex
from typing import Any

from kelpie.cli.chat.approval_answers import waiting_calls
from kelpie.cli.chat.approval_prompt import Ask, decisions
from kelpie.cli.chat.conversation import Conversation
from kelpie.cli.chat.screen import Outcome, Screen
from kelpie.cli.chat.turn import Turn
from kelpie.cli.output import cell
from kelpie.core.errors import KelpieError
from kelpie.world.http.cli_client import ErrorResponse

PENDING = "PENDING_APPROVAL"
APPROVALS_MAX = 100  # requests in a row that one message may lead to


class LeaveChat(Exception):
    """The person wants to leave at once, while something is still going on."""


class Session:
    """Sends messages and shows the answers. Without `ask` there is nobody to decide about tool calls."""

    def __init__(self, conversation: Conversation, screen: Screen, ask: Ask | None = None) -> None:
        self.conversation = conversation
        self.screen = screen
        self._ask = ask
        self.interrupted = False  # whether the last turn ended with Ctrl-C

    def send(self, text: str) -> bool:
        """Plays the turns of one message; False, with the reason on the screen, when it did not go well.

        Raises LeaveChat.
        """
        return self.play(self.conversation.message(text))

    def play(self, turn: Turn) -> bool:
        """The same for a turn that already exists, such as the answers to waiting calls. Raises LeaveChat."""
        return self._decided(self._play(turn))

    def decide(self) -> bool:
        """Asks about the calls that wait in this conversation, if any, and plays what follows. Raises LeaveChat."""
        request = self._pending()
        if request is None:
            return True
        return self._decided(self._answer(request))

    def _decided(self, outcome: Outcome) -> bool:
        """Asks about waiting calls for as long as a turn ends with some."""
        for _ in range(APPROVALS_MAX):
            if not outcome.awaits_approval:
                return outcome.went_well
            request = self._pending()
            if request is None:
                return outcome.went_well
            outcome = self._answer(request)
        return False

    def _answer(self, request: dict[str, Any]) -> Outcome:
        if self._ask is None:
            show_way_out(self.screen, self.conversation, request)
            return Outcome(False)
        try:
            answers = decisions(self.screen, request, self._ask)
        except (KeyboardInterrupt, EOFError):
            answers = None
        if answers is None:
            self.screen.note("The call keeps waiting; /approve asks again.")
            return Outcome(False)
        outcome = self._play(self.conversation.answers(answers))
        # An answer that the server refused, such as arguments that do not fit, leaves the call waiting.
        return Outcome(False, "requires_approval") if outcome.refused else outcome

    def _pending(self) -> dict[str, Any] | None:
        try:
            return self.conversation.pending()
        except KelpieError as error:
            self.screen.print_error(str(error))
            return None

    def _play(self, turn: Turn) -> Outcome:
        """Follows a turn. Ctrl-C cancels it. Raises LeaveChat."""
        self.interrupted = False
        try:
            return self.screen.show(turn.events())
        except KeyboardInterrupt:
            self._cancel(turn)
            return Outcome(False, "cancelled")
        except ErrorResponse as error:
            if error.code == PENDING:
                self.screen.print_error("the message was not sent, because a tool call waits for an answer first.")
                return Outcome(False, "requires_approval")
            self.screen.print_error(str(error))
            return Outcome(False, refused=True)
        except KelpieError as error:
            self.screen.print_error(str(error))
            return Outcome(False)

    def _cancel(self, turn: Turn) -> None:
        self.interrupted = True
        name = self.conversation.agent_name
        goes_on = f"The agent is still working; `kelpie agents cancel {shlex.quote(cell(name))}` stops it."
        try:
            self.screen.note("Cancelling ... (Ctrl-C again leaves the chat)")
            done = turn.cancel(self.conversation.agent_id)
            self.screen.note("Cancelled." if done else f"Stopped waiting. {goes_on}")
        except KeyboardInterrupt:
            self.screen.note(goes_on)
            raise LeaveChat from None
        except KelpieError as error:
            self.screen.print_error(f"{error}. {goes_on}")


def show_way_out(screen: Screen, conversation: Conversation, request: dict[str, Any]) -> None:
    """Shows the calls that wait and the commands that answer them."""
    for call in waiting_calls(request):
        screen.show_call(call["name"], call["arguments"])
    who = shlex.quote(cell(conversation.agent_name))
    where = "" if conversation.is_default else f" --conversation {conversation.id}"
    screen.print_error("this needs an approval before the agent can go on:")
    screen.note(f"  kelpie approvals approve {who}{where}")
    screen.note(f"  kelpie approvals deny {who}{where} --reason 'not now'")
