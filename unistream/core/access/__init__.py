"""Who may do what over REST. Pure.

Decides: what a token's text is, whether a request that presents one is answered, and as whom. May import:
`base`, `model`. Start with `tokens`.
"""

from __future__ import annotations

from unistream.core.access.rates import RequestRates
from unistream.core.access.tokens import (
    RANDOM_BYTES,
    TOKEN_NAME_CHARS_MAX,
    Denied,
    Identity,
    IssuedToken,
    SealedToken,
    TokenRecord,
    code_seal,
    exchange_token,
    has_own_seal,
    identify,
    is_token,
    issued,
    parsed,
    revoked,
    sealed,
    worker_secret,
)

__all__ = [
    "RANDOM_BYTES",
    "TOKEN_NAME_CHARS_MAX",
    "Denied",
    "Identity",
    "IssuedToken",
    "RequestRates",
    "SealedToken",
    "TokenRecord",
    "code_seal",
    "exchange_token",
    "has_own_seal",
    "identify",
    "is_token",
    "issued",
    "parsed",
    "revoked",
    "sealed",
    "worker_secret",
]
