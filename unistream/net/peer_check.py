"""Who calls a server over TCP: each call presents a secret, before anything of it is read."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from pyarrow import flight

HEADER: Final = "authorization"
SCHEME: Final = "Bearer "
REFUSAL: Final = (
    "it takes calls of its own workers only, which are started on the account of the cluster's owner, with "
    "the same UNISTREAM_HOME"
)


class PeerCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow is not typed
    """Refuses each call that does not present the secret."""

    def __init__(self, secret: str) -> None:
        self._wanted = (SCHEME + secret).encode()

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> None:
        """See pyarrow. Raises FlightUnauthenticatedError."""
        values = [value for name, found in headers.items() if name.lower() == HEADER for value in found]
        given = [value.encode() if isinstance(value, str) else value for value in values]
        if len(given) != 1 or not hmac.compare_digest(given[0], self._wanted):
            raise flight.FlightUnauthenticatedError(REFUSAL)


def presenting(secret: str | None) -> list[tuple[bytes, bytes]]:
    """The headers of a call. None: there is none to present."""
    return [] if secret is None else [(HEADER.encode(), (SCHEME + secret).encode())]
