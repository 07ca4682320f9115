"""The header that names the user a request acts for. `server/edge/authentication.py` reads it; this module only adds it
to the schema.
"""

from typing import Annotated

from fastapi import Header

from kelpie.server.http.dependencies import schema_only


@schema_only
async def actor(
    user_id: Annotated[
        str | None,
        Header(
            alias="user_id",
            convert_underscores=False,
            description="The user to act for, `user-<uuid4>`. An unknown id means the default user.",
        ),
    ] = None,
) -> None:
    """Never called."""
