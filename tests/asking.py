"""Plain HTTP requests to a cluster, as its owner."""

from __future__ import annotations

from unistream.client.machine.tokens import token_for


def as_owner(url: str) -> dict[str, str]:
    """The header that a client of the owner's sends along; none if no cluster of this home is there."""
    token = token_for(url)
    return {} if token is None else {"Authorization": f"Bearer {token}"}
