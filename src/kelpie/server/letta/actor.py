"""Who asks. There is one organisation and one user until accounts exist; the header is checked all the same."""

from typing import Annotated

from fastapi import Header

from kelpie.core.errors import InvalidId, InvalidInput
from kelpie.core.ids import DEFAULT_USER, UserId


async def actor(user_id: Annotated[str | None, Header(alias="user_id", convert_underscores=False)] = None) -> UserId:
    """The user a request acts for. An unknown one is the default user. Raises InvalidInput for a malformed id."""
    if user_id:
        try:
            UserId.parse(user_id)
        except InvalidId:
            raise InvalidInput("user_id", f"'{user_id[:80]}' is not of the form user-<uuid4>") from None
    return DEFAULT_USER
