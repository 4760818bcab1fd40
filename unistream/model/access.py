"""Tokens as clients of the REST API see them, and what each lets its holder do. Times are ms since 1970."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from unistream.base.errors import ConfigError

CODE_LASTS_MS: Final = 5 * 60_000


class Scope(Enum):
    """What a holder may do; each holds the ones before it.

    A submitter runs code of its own as the cluster's owner: SUBMIT is for whom one would give a shell.
    """

    READ = "read"
    """Look at everything but secrets, also at rows of state and of dead letters."""

    OPERATE = "operate"
    """Savepoint, stop, cancel, rescale, start again what was accepted before."""

    SUBMIT = "submit"
    """Submit jobs."""

    ADMIN = "admin"
    """Make and revoke tokens, end the cluster."""

    def allows(self, needed: Scope) -> bool:
        """Whether a holder may do what needs the other scope.

        >>> Scope.SUBMIT.allows(Scope.READ), Scope.READ.allows(Scope.OPERATE)
        (True, False)
        """
        order = list(Scope)
        return order.index(self) >= order.index(needed)

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Raises ConfigError for anything but one of the four words."""
        try:
            return cls(text.strip().lower())
        except ValueError:
            raise ConfigError(
                f"{text[:80]!r} is no scope: one of {', '.join(one.value for one in cls)}"
            ) from None


class TokenShown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A token in a list. Times are ms since 1970; `used_ms` is known to the hour."""

    id: str
    name: str
    scope: Scope
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    used_ms: int | None


class TokensShown(msgspec.Struct, frozen=True):
    """All tokens, the newest first."""

    tokens: list[TokenShown]


class NewToken(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A token that was just made. `token`: its text."""

    token: str
    id: str
    name: str
    scope: Scope
    expires_ms: int | None


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """`lasts_ms` None: for ever."""

    name: str
    scope: Scope
    lasts_ms: int | None = None


class CodeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`lasts_ms`: how long the code is taken."""

    lasts_ms: int = CODE_LASTS_MS


class LoginBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The code of a link."""

    code: str


class NewCode(msgspec.Struct, frozen=True, rename="camel"):
    """A code, and how long it is taken."""

    code: str
    lasts_ms: int


class IdentityShown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whom a request is from. `token`: the id of its token; "": none is needed here."""

    token: str
    name: str
    scope: Scope
    expires_ms: int | None
