"""Which files of an incremental backend a completed checkpoint has stored already."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from unistream.base.ids import CheckpointId
from unistream.model.file_ref import FileRef


class Uploads:
    """Files that checkpoints of this attempt have stored. Thread-safe.

    A file may be referred to only once a checkpoint that names it is complete: what an aborted one stored may
    be removed at any time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._pending: dict[CheckpointId, dict[str, FileRef]] = {}
        self._latest = CheckpointId(-1)
        self._known: dict[str, FileRef] = {}

    def known(self) -> dict[str, FileRef]:
        """The files of the latest completed checkpoint, by name."""
        with self._lock:
            return dict(self._known)

    def remember(self, checkpoint_id: CheckpointId, refs: Mapping[str, FileRef]) -> None:
        """A checkpoint stored, or referred to, these."""
        with self._lock:
            if checkpoint_id > self._latest:
                self._pending[checkpoint_id] = {name: ref for name, ref in refs.items() if ref.shared}

    def complete(self, checkpoint_id: CheckpointId) -> None:
        """Forgets older ones. Repeated, late or unknown (a savepoint) is fine."""
        with self._lock:
            refs = self._pending.get(checkpoint_id)
            if refs is None or checkpoint_id <= self._latest:
                return
            self._known, self._latest = refs, checkpoint_id
            self._pending = {other: found for other, found in self._pending.items() if other > checkpoint_id}
