"""Who a request is from, and whether it may do that: each path needs a scope (`openapi.OPERATIONS`).

    no token, or none of this cluster     401, with one sentence; nothing of the request was read
    a token whose scope is too small      403
    `security.rest.authentication: none`  everybody is an admin

`authorized` asks this for each request. The process that leads makes a token for the owner of its files each
time that it begins to; clients of the same user on the same machine find it next to the cluster's address.
All others are in the cluster's HA store.

A browser gets its token for a code that is taken once and soon: a code may stand in the fragment of a link,
which no server sees, and a token stands in no URL.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from typing import Final, NamedTuple

from unistream.base.clock import Clock
from unistream.base.errors import AccessDenied, ConfigError
from unistream.core import access
from unistream.core.access import Denied, Identity
from unistream.master.store import TokenStore
from unistream.model.access import Scope
from unistream.rest.allowed_paths import AllowedPaths
from unistream.rest.audit import PATH_CHARS_MAX, AuditEntry, AuditLog

OWNER: Final = "the owner of the cluster"
CODE_BYTES: Final = 32
CODES_MAX: Final = 1_000  # each is a link that somebody has asked for and not followed yet
CODE_LASTS_MS_MAX: Final = 24 * 3_600_000
BROWSER_LASTS_MS: Final = 12 * 3_600_000
ANYBODY: Final = Identity(token="", name="anybody", scope=Scope.ADMIN)


class LoginCode(NamedTuple):
    """A code that was not taken yet; of it only a digest is kept. `identity`: of who has asked for it."""

    identity: Identity
    expires_ms: int


class AccessControl:
    """See the module. Thread-safe.

    Args:
        tokens: Of the cluster.
        clock: Of tokens that expire.
        paths: Which places requests may name.
        audit: Notes who has changed what.
        rate: How many requests a token may make in a second; 0: any number.
        required: False: everybody is an admin.
    """

    def __init__(
        self,
        tokens: TokenStore,
        clock: Clock,
        paths: AllowedPaths,
        audit: AuditLog,
        *,
        rate: int = 0,
        required: bool = True,
    ) -> None:
        self.tokens = tokens
        self.paths = paths
        self.audit = audit
        self.rates = access.RequestRates(rate)
        self._clock = clock
        self._required = required
        owner = self._issued(OWNER, Scope.ADMIN, None)
        self.owner_token = owner.text
        self._owner = owner.record
        self._codes: dict[str, LoginCode] = {}
        self._lock = threading.Lock()

    def identify(self, authorization: str | None) -> Identity | Denied:
        """Whom a request with this header is from. Returns at once."""
        if not self._required:
            return ANYBODY
        return access.identify(authorization, self._find, self._clock.wall_ms())

    def _find(self, id_: str) -> access.TokenRecord | None:
        return self._owner if id_ == self._owner.id else self.tokens.known.get(id_)

    def audited(
        self, identity: Identity, method: str, path: str, client: tuple[str, int] | None, status: int
    ) -> AuditEntry:
        """What the audit log has of a request that was answered."""
        return AuditEntry(
            at_ms=self._clock.wall_ms(),
            token=identity.token,
            name=identity.name,
            method=method,
            path=path[:PATH_CHARS_MAX],
            client="" if client is None else client[0],
            status=status,
        )

    # --- tokens -----------------------------------------------------------------------------------

    def issue(
        self,
        name: str,
        scope: Scope,
        lasts_ms: int | None,
        *,
        parent: str = "",
        uses: int | None = None,
    ) -> access.IssuedToken:
        """A new token, which is taken from now on. Raises as `TokenStore.add`."""
        made = self._issued(name, scope, lasts_ms, parent, uses)
        self.tokens.add(made.record)
        return made

    def _issued(
        self, name: str, scope: Scope, lasts_ms: int | None, parent: str = "", uses: int | None = None
    ) -> access.IssuedToken:
        random, now_ms = secrets.token_bytes(access.RANDOM_BYTES), self._clock.wall_ms()
        return access.issued(name, scope, random, now_ms=now_ms, lasts_ms=lasts_ms, parent=parent, uses=uses)

    # --- browsers ---------------------------------------------------------------------------------

    def login_code(self, identity: Identity, lasts_ms: int) -> str:
        """A code for which a browser gets a token with the scope of `identity`, once, for `lasts_ms`.

        Raises:
            ConfigError: it would last too long, or too many wait to be taken.
        """
        if not 0 < lasts_ms <= CODE_LASTS_MS_MAX:
            raise ConfigError(f"a login code lasts 1 ms to {CODE_LASTS_MS_MAX} ms, not {lasts_ms} ms")
        now_ms, code = self._clock.wall_ms(), secrets.token_hex(CODE_BYTES)
        with self._lock:
            self._codes = {key: one for key, one in self._codes.items() if one.expires_ms > now_ms}
            if len(self._codes) >= CODES_MAX:
                raise ConfigError(f"{CODES_MAX} login codes wait to be used, which is the most")
            self._codes[_digest(code)] = LoginCode(identity, now_ms + lasts_ms)
        return code

    def log_in(self, code: str) -> access.IssuedToken:
        """A token for a browser. Raises AccessDenied: the code was used, or is none by now."""
        with self._lock:
            found = self._codes.pop(_digest(code), None)
        now_ms = self._clock.wall_ms()
        if found is None or found.expires_ms <= now_ms:
            raise AccessDenied("the code of this link was used, or has expired")
        identity = found.identity
        left_ms = BROWSER_LASTS_MS if identity.expires_ms is None else identity.expires_ms - now_ms
        parent = self.tokens.known.get(identity.token)
        if left_ms <= 0 or (parent is not None and parent.has_ended(now_ms)):
            raise AccessDenied("the token with which this link was made is taken no more")
        name = f"browser of {identity.name}"[: access.TOKEN_NAME_CHARS_MAX]
        return self.issue(name, identity.scope, min(BROWSER_LASTS_MS, left_ms), parent=identity.token)


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
