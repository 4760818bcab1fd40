"""Tokens as clients of the REST API see them, and what each lets its holder do. Times are ms since 1970."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

import msgspec

from unistream.base.errors import ConfigError
from unistream.base.releases import SILENT

HOST_CHARS_MAX: Final = 24
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9-]")
CODE_LASTS_MS: Final = 5 * 60_000


class Scope(Enum):
    """What a holder may do; each holds the ones before it, but JOIN, which is for hosts and not for people.

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

    JOIN = "join"
    """Have a worker on another host join the cluster; nothing else, and nobody else may."""

    def allows(self, needed: Scope) -> bool:
        """Whether a holder may do what needs the other scope.

        >>> Scope.SUBMIT.allows(Scope.READ), Scope.READ.allows(Scope.OPERATE), Scope.ADMIN.allows(Scope.JOIN)
        (True, False, False)
        """
        if Scope.JOIN in (self, needed):
            return self is needed
        order = list(Scope)
        return order.index(self) >= order.index(needed)

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Raises ConfigError for anything but one of the five words."""
        try:
            return cls(text.strip().lower())
        except ValueError:
            raise ConfigError(
                f"{text[:80]!r} is no scope: one of {', '.join(one.value for one in cls)}"
            ) from None


class TokenShown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A token in a list. Times are ms since 1970; `used_ms` is known to the hour. `uses_left` None: any
    number."""

    id: str
    name: str
    scope: Scope
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    used_ms: int | None
    uses_left: int | None = None


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
    """`lasts_ms` None: for ever. `uses`: of one that lets hosts join: how many; None: any number."""

    name: str
    scope: Scope
    lasts_ms: int | None = None
    uses: int | None = None


class RotationBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The cluster gets another authority. `keep_ms`: how long what the former one has issued is believed."""

    keep_ms: int


class RotationAnswer(msgspec.Struct, frozen=True):
    """The SHA-256 of the new authority's certificate, in hex."""

    fingerprint: str


class JoinBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A host that joins. `request`: for a certificate, PEM; `host`: its name, for people; `clock_ms`: its
    time; `version`, `python`: what is installed there. Fields of a later version of the same series are left
    out of account, since the two work together."""

    request: str
    host: str
    clock_ms: int
    version: str = SILENT
    python: str = ""


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a worker shows from now on (see `model.credentials`), and where it registers."""

    name: str
    certificate: str
    roots: str
    until_ms: int
    control: str


def process_name(host: str, suffix: str) -> str:
    """The name of a worker's process in its certificate: a label of a host name.

    >>> process_name("Node 7.example", "0a1b2c3d4e5f")
    'tm-Node-7-example-0a1b2c3d4e5f'
    """
    return f"tm-{_NO_LABEL.sub('-', host)[:HOST_CHARS_MAX].strip('-') or 'host'}-{suffix}"


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
