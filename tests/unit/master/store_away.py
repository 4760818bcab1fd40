"""An HA store that does not answer for a while."""

from __future__ import annotations

from collections.abc import Sequence

from unistream.base.errors import OutcomeUnknown, UnistreamError, Unreachable
from unistream.base.ids import LeaderEpoch
from unistream.port.ha import HaEntry, HaStore
from unistream.port.storage import Created

AWAY = Unreachable("the HA store is away")
UNSURE = OutcomeUnknown("the HA store has not answered")


class StoreAway:
    """A `HaStore` that hands on what it is asked, or refuses to write values whose names contain `part`.

    Attributes:
        away: Raised by each write; None: it answers. With OutcomeUnknown the write is done.
        refused: Names of what was not written, or not confirmed.
    """

    def __init__(self, store: HaStore, part: str = "/request") -> None:
        self._store = store
        self._part = part
        self.away: UnistreamError | None = None
        self.refused: list[str] = []

    @property
    def epoch(self) -> LeaderEpoch:
        return self._store.epoch

    def leads(self) -> bool:
        return self._store.leads()

    def read(self, name: str) -> HaEntry | None:
        return self._store.read(name)

    def children(self, name: str) -> Sequence[str]:
        return self._store.children(name)

    def create(self, name: str, value: bytes) -> Created:
        self._refuse(name)
        created = self._store.create(name, value)
        self._doubt(name)
        return created

    def replace(self, name: str, value: bytes, version: int) -> int:
        self._refuse(name)
        replaced = self._store.replace(name, value, version)
        self._doubt(name)
        return replaced

    def remove(self, name: str) -> None:
        self._store.remove(name)

    def check(self) -> None:
        self._store.check()

    def _refuse(self, name: str) -> None:
        if self._is_away(name) and not isinstance(self.away, OutcomeUnknown):
            self._raise(name)

    def _doubt(self, name: str) -> None:
        if self._is_away(name):
            self._raise(name)

    def _is_away(self, name: str) -> bool:
        return self.away is not None and self._part in name

    def _raise(self, name: str) -> None:
        self.refused.append(name)
        assert self.away is not None, "it is away"
        raise self.away
