"""An identity as Letta's clients see it.

`agent_ids` and `block_ids` are deprecated and always empty, as in Letta: linked agents and blocks are listed, page by
page, by the identity's own routes.
"""

from typing import Any

from kelpie.core.access.identities import Identity


def identity_shape(identity: Identity) -> dict[str, Any]:
    return {
        "id": identity.id,
        "identifier_key": identity.identifier_key,
        "name": identity.name,
        "identity_type": identity.identity_type,
        "project_id": identity.project_id,
        "agent_ids": [],
        "block_ids": [],
        "organization_id": identity.organization_id,
        "properties": [{"key": each.key, "value": each.value, "type": each.type} for each in identity.properties],
    }
