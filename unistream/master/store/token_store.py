"""The tokens of a cluster, in its HA store: every leader takes those that another one has made.

    tokens/<id>   the record of one token (`core.access`), sealed; the secret of the token is nowhere

Only the leader writes, so what it has read once is what there is. Thread-safe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

import msgspec

from unistream.base.clock import Clock
from unistream.base.errors import AccessDenied, ConfigError, CorruptSnapshot, NotFound, UnistreamError
from unistream.core.access import SealedToken, TokenRecord, has_own_seal, revoked, sealed
from unistream.model.stored_job import decode_stored, encode_stored
from unistream.port.ha import HaStore

TOKENS: Final = "tokens"
TOKENS_MAX: Final = 1_000  # of all people and programs of a cluster
ENDED_KEPT_MS: Final = 7 * 24 * 3_600_000  # for people who look why theirs is refused
BROWSERS_MAX: Final = 20  # of one token: each link that is followed makes one, and the oldest ends for it
USE_WRITTEN_MS: Final = 3_600_000  # how exactly the last use of a token is known behind a takeover

logger = logging.getLogger(__name__)


class TokenStore:
    """See the module.

    Args:
        ha: Of this leader.
        clock: Of tokens that end.
        secret: Of the cluster: with it records are sealed, since others may write the HA store.

    Raises:
        Unreachable: the store does not answer.
    """

    def __init__(self, ha: HaStore, clock: Clock, secret: bytes) -> None:
        self._ha = ha
        self._clock = clock
        self._secret = secret
        self._lock = threading.Lock()
        found = [self._read(id_) for id_ in ha.children(TOKENS)]
        self._known = {record.id: record for record in found if record is not None}
        for record in list(self._known.values()):  # its leader may have ended before it has removed them
            for browser in self._browsers_of(record.id) if record.revoked_ms is not None else ():
                self._known.pop(browser.id, None)

    @property
    def known(self) -> Mapping[str, TokenRecord]:
        """All records by id, also of ended ones. Never changed: a change makes another one."""
        return self._known

    def add(self, record: TokenRecord) -> None:
        """Stores a new token; it is taken once this returns. Tokens that have ended long ago are removed.

        Raises:
            ConfigError: there are too many.
            Fenced, Unreachable, OutcomeUnknown: see `HaStore`; it may or may not be taken.
        """
        now_ms = self._clock.wall_ms()
        with self._lock:
            for old in [one for one in self._known.values() if _is_forgotten(one, now_ms)]:
                self._forget(old)
            browsers = [one for one in self._known.values() if one.parent == record.parent != ""]
            too_many = max(0, len(browsers) + 1 - BROWSERS_MAX)
            for old in sorted(browsers, key=lambda one: one.created_ms)[:too_many]:
                self._forget(old)
            if len(self._known) >= TOKENS_MAX:
                raise ConfigError(
                    f"this cluster has {TOKENS_MAX} tokens, which is the most; revoke some that nobody uses, "
                    "and give others a duration"
                )
            self._ha.create(_name(record.id), self._encoded(record))
            self._known = {**self._known, record.id: record}

    def revoke(self, text: str) -> TokenRecord:
        """The token, which is not taken from now on, nor are those of browsers that were let in with it.
        `text`: its id, or the beginning of it, or its name.

        Raises:
            NotFound: there is none.
            ConfigError: it could be several.
            Fenced, Unreachable, OutcomeUnknown: see `HaStore`; here it is not taken any more.
        """
        with self._lock:
            record = revoked(self._found(text), self._clock.wall_ms())
            browsers = self._browsers_of(record.id)
            self._known = {**self._known, record.id: record}  # also if the write fails
            for browser in browsers:
                self._known = {**self._known, browser.id: revoked(browser, self._clock.wall_ms())}
            self._write(record)
            for browser in browsers:
                self._forget(browser)
            return record

    def _browsers_of(self, id_: str) -> list[TokenRecord]:
        """Also those of browsers that have let in others."""
        found = [one for one in self._known.values() if one.parent == id_]
        return [*found, *(more for one in found for more in self._browsers_of(one.id))]

    def is_use_due(self, id_: str) -> bool:
        """Whether a use of that token is to be noted: it was not for a while. Returns at once."""
        record = self._known.get(id_)
        return record is not None and (record.used_ms or 0) + USE_WRITTEN_MS <= self._clock.wall_ms()

    def used(self, id_: str) -> None:
        """Notes that a token was used; what cannot be written is tried again with a later use."""
        with self._lock:
            if not self.is_use_due(id_):
                return
            record = msgspec.structs.replace(self._known[id_], used_ms=self._clock.wall_ms())
            self._known = {**self._known, id_: record}
            try:
                self._write(record)
            except UnistreamError as error:
                logger.warning("event=token_use_not_written token=%s reason=%r", id_, str(error))

    def take_use(self, id_: str) -> None:
        """Counts one use of a token, before what it is used for is done.

        Raises:
            AccessDenied: it has ended meanwhile.
            Fenced, Unreachable, OutcomeUnknown: see `HaStore`; the use may be counted.
        """
        with self._lock:
            record = self._known.get(id_)
            if record is None or record.has_ended(self._clock.wall_ms()):
                raise AccessDenied("its token was used, revoked, or has expired meanwhile")
            if record.uses_left is None:
                return
            record = msgspec.structs.replace(
                record, uses_left=record.uses_left - 1, used_ms=self._clock.wall_ms()
            )
            self._known = {**self._known, id_: record}
            self._write(record)

    def _write(self, record: TokenRecord) -> None:
        there = self._ha.read(_name(record.id))
        if there is None:
            self._ha.create(_name(record.id), self._encoded(record))
        else:  # of whatever version: a write that was not confirmed may have been done
            self._ha.replace(_name(record.id), self._encoded(record), there.version)

    def _encoded(self, record: TokenRecord) -> bytes:
        return encode_stored(sealed(record, self._secret))

    def _read(self, id_: str) -> TokenRecord | None:
        """None: it was removed, or is not from here, or cannot be read. Then it lets nobody in, and it must
        not keep everybody out."""
        entry = self._ha.read(_name(id_))
        if entry is None:
            return None
        try:
            token = decode_stored(entry.value, SealedToken, _name(id_))
        except CorruptSnapshot as error:
            logger.warning("event=token_unreadable token=%s reason=%r", id_, str(error))
            return None
        if token.record.id != id_ or not has_own_seal(token, self._secret):
            logger.warning("event=token_forged token=%s reason='it was not sealed by this cluster'", id_)
            return None
        return token.record

    def _forget(self, record: TokenRecord) -> None:
        self._ha.remove(_name(record.id))
        self._known = {id_: one for id_, one in self._known.items() if id_ != record.id}

    def _found(self, text: str) -> TokenRecord:
        ids = [one for one in self._known.values() if len(text) >= 4 and one.id.startswith(text.lower())]
        now_ms = self._clock.wall_ms()
        named = [one for one in self._known.values() if one.name == text and not one.has_ended(now_ms)]
        found = {one.id: one for one in [*ids, *named]}
        if not found:
            raise NotFound(f"this cluster has no token {text[:80]!r}; 'unistream token list' shows all")
        if len(found) > 1:
            ids_ = ", ".join(f"{one.id} ({one.name})" for one in list(found.values())[:5])
            raise ConfigError(f"{text[:80]!r} could be {len(found)} tokens: {ids_}; give the id")
        return next(iter(found.values()))


def _name(id_: str) -> str:
    return f"{TOKENS}/{id_}"


def _is_forgotten(record: TokenRecord, now_ms: int) -> bool:
    ended_ms = min(
        (at for at in (record.revoked_ms, record.expires_ms) if at is not None), default=now_ms + 1
    )
    return ended_ms + (0 if record.parent else ENDED_KEPT_MS) <= now_ms
