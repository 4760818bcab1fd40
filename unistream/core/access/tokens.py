"""Bearer tokens: their text, what is kept of them, and whom a request that presents one is from.

    unistream_<12 hex digits: the id>_<64 hex digits: the secret>[_<64 hex digits: a fingerprint>]

The id is no secret: it finds the record, and names the token in lists and logs. Of the secret only a SHA-256
is kept: it is 256 random bits, which nobody finds by trying, so a slow hash would only cost time. The
fingerprint is that of the authority by which a client recognises the cluster (`unistream.trust.pinning`); a
server does not look at it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from unistream.base.errors import ConfigError
from unistream.base.ids import JobId
from unistream.model.access import Scope
from unistream.model.time_range import time_text

ID_BYTES: Final = 6
RANDOM_BYTES: Final = ID_BYTES + 32
TOKEN_NAME_CHARS_MAX: Final = 100
_TEXT: Final = re.compile(r"unistream_([0-9a-f]{12})_([0-9a-f]{64})(?:_([0-9a-f]{64}))?")


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a token. Times are ms since 1970.

    Attributes:
        name: For people: who has it, or what for.
        digest: SHA-256 of the secret, in hex.
        expires_ms: None: never.
        revoked_ms: None: it was not.
        used_ms: When it was last known to be used; None: not yet.
        parent: Id of the token for whose holder this one was made, a browser's: it ends with that; "": none.
        uses_left: How often it will be taken; None: any number of times.
    """

    id: str
    name: str
    scope: Scope
    digest: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    used_ms: int | None = None
    parent: str = ""
    uses_left: int | None = None

    def has_ended(self, now_ms: int) -> bool:
        """It was revoked or used up, or has expired: it will never be taken again."""
        is_over = self.expires_ms is not None and self.expires_ms <= now_ms
        return self.revoked_ms is not None or is_over or self.uses_left == 0


class SealedToken(msgspec.Struct, frozen=True):
    """A record as it is stored where others may write: in ZooKeeper, say. `seal`: an HMAC of it."""

    record: TokenRecord
    seal: str


class IssuedToken(NamedTuple):
    """A new token: its text, which is shown once, and what is kept."""

    text: str
    record: TokenRecord


class PresentedToken(NamedTuple):
    """A token's text in its parts. `fingerprint`: SHA-256 of the cluster's authority, in hex; "": none."""

    id: str
    secret: str
    fingerprint: str = ""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a request is from. `token`: the id of its token; "": none is needed here."""

    token: str
    name: str
    scope: Scope
    expires_ms: int | None = None


class Denied(NamedTuple):
    """Why a request is from nobody; one sentence."""

    why: str


def issued(
    name: str,
    scope: Scope,
    random: bytes,
    *,
    now_ms: int,
    lasts_ms: int | None = None,
    parent: str = "",
    uses: int | None = None,
) -> IssuedToken:
    """A new token.

    Args:
        name: 1 to 100 printable characters.
        scope: What its holder may do.
        random: `RANDOM_BYTES` bytes of the system's generator for secrets.
        now_ms: The time.
        lasts_ms: How long it is taken; None: for ever.
        parent: See `TokenRecord`.
        uses: How often it is taken; None: any number of times.

    Raises:
        ConfigError: it cannot have that name or that duration.
    """
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"{len(random)} random bytes are not {RANDOM_BYTES}")
    if not 0 < len(name.strip()) <= TOKEN_NAME_CHARS_MAX or not name.isprintable():
        raise ConfigError(f"the name of a token has 1 to {TOKEN_NAME_CHARS_MAX} printable characters")
    if lasts_ms is not None and lasts_ms <= 0:
        raise ConfigError("a token lasts for some time: give a duration above 0, such as 30 d")
    if uses is not None and (uses < 1 or scope is not Scope.JOIN):
        raise ConfigError(
            "a token that lets hosts join has uses, 1 or more; others are taken any number of times"
        )
    id_, secret = random[:ID_BYTES].hex(), random[ID_BYTES:].hex()
    record = TokenRecord(
        id=id_,
        name=name.strip(),
        scope=scope,
        digest=_digest(secret),
        created_ms=now_ms,
        expires_ms=None if lasts_ms is None else now_ms + lasts_ms,
        parent=parent,
        uses_left=uses,
    )
    return IssuedToken(f"unistream_{id_}_{secret}", record)


def revoked(record: TokenRecord, now_ms: int) -> TokenRecord:
    """The same token, which is not taken any more."""
    return record if record.revoked_ms is not None else msgspec.structs.replace(record, revoked_ms=now_ms)


def sealed(record: TokenRecord, secret: bytes) -> SealedToken:
    """The record with a seal that only who has the cluster's secret can make."""
    return SealedToken(record, hmac.new(secret, msgspec.json.encode(record), hashlib.sha256).hexdigest())


def has_own_seal(token: SealedToken, secret: bytes) -> bool:
    """Whether the record was sealed with the secret, and not changed since."""
    return hmac.compare_digest(token.seal, sealed(token.record, secret).seal)


def worker_secret(secret: bytes) -> str:
    """What workers that connect over TCP present: it follows from the cluster's secret, so it is the same for
    all of its leaders."""
    return hmac.new(secret, b"workers", hashlib.sha256).hexdigest()


def code_seal(secret: bytes, job: JobId, names: Iterable[str]) -> str:
    """What only who has the cluster's secret can write next to the names of a job's artifacts, which are
    digests of their content: that this cluster has accepted these, for this job."""
    key = hmac.new(secret, b"code", hashlib.sha256).digest()
    return hmac.new(key, "\n".join((job, *names)).encode(), hashlib.sha256).hexdigest()


def exchange_token(secret: bytes, job: JobId) -> str:
    """What tasks of a job present to read each other's rows; the same for all leaders of the cluster."""
    return hmac.new(secret, b"exchange " + job.encode(), hashlib.sha256).hexdigest()


def parsed(text: str) -> PresentedToken | None:
    """The parts of a token's text; None: it is none."""
    found = _TEXT.fullmatch(text)
    return None if found is None else PresentedToken(found[1], found[2], found[3] or "")


def is_token(text: str) -> bool:
    """Whether it has the form of a token.

    >>> is_token("unistream_" + "0" * 12 + "_" + "f" * 64), is_token("Basic dXNlcg==")
    (True, False)
    """
    return parsed(text) is not None


def identify(
    authorization: str | None, find: Callable[[str], TokenRecord | None], now_ms: int
) -> Identity | Denied:
    """Whom a request is from.

    Args:
        authorization: The value of its header, ``Bearer unistream_…``; None: it has none, or several.
        find: The record of a token of the cluster, by its id; None: it has none.
        now_ms: The time.
    """
    if not authorization:
        return Denied("it presents no token")
    scheme, _, text = authorization.strip().partition(" ")
    presented = parsed(text.strip())
    if scheme.lower() != "bearer" or presented is None:
        return Denied("what it presents is no token of unistream: 'Bearer unistream_…', copied completely")
    record = find(presented.id)
    # Only the holder of the secret learns that the token has ended.
    if record is None or not hmac.compare_digest(record.digest, _digest(presented.secret)):
        return Denied(f"its token ({presented.id}…) is none of this cluster")
    if record.revoked_ms is not None:
        return Denied(
            f"its token {record.name!r} ({record.id}…) was revoked at {time_text(record.revoked_ms)}"
        )
    if record.expires_ms is not None and record.expires_ms <= now_ms:
        return Denied(
            f"its token {record.name!r} ({record.id}…) has expired at {time_text(record.expires_ms)}"
        )
    if record.uses_left == 0:
        return Denied(f"its token {record.name!r} ({record.id}…) was used as often as it may be")
    return Identity(token=record.id, name=record.name, scope=record.scope, expires_ms=record.expires_ms)


def _digest(secret: str) -> str:
    return hashlib.sha256(bytes.fromhex(secret)).hexdigest()
