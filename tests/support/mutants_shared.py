"""Planted bugs of files that checkpoints share; the table of all is in `mutants`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unistream.base.ids import CheckpointId
from unistream.core.checkpoint.store import CompletedSnapshots, Unneeded
from unistream.state.common.uploads import Uploads
from unistream.testing.sim.shared_files import SharedFolders, directory_number, parent_of

Patch = tuple[object, str, object]


def released_too_early() -> list[Patch]:
    """All files of a checkpoint are removed with it, also those of newer ones (FLINK-25395)."""
    original = CompletedSnapshots._dropped

    def dropped(self: Any, snapshots: Any) -> list[str]:
        directories = original(self, snapshots)
        for one in snapshots:
            if self._unneeded[one.directory].sweep is None:
                self._unneeded[one.directory] = Unneeded(files=tuple(sorted(one.shared)))
        return directories

    return [(CompletedSnapshots, "_dropped", dropped)]


def placeholder_kept() -> list[Patch]:
    return [(CompletedSnapshots, "resolved", lambda _self, manifest: manifest)]


def unknown_keeps_all() -> list[Patch]:
    """All files stay while an older checkpoint exists, as one of unknown outcome does for ever."""
    original = SharedFolders.remove_after

    def remove_after(self: Any, directory: str, names: Any, *who: Any) -> None:
        older = any(one < directory_number(directory) for one, _ in self.checkpoints(parent_of(directory)))
        kept = names if older else ()
        self._to_remove.update((parent_of(directory), name) for name in kept)
        original(self, directory, [name for name in names if name not in kept], *who)

    return [(SharedFolders, "remove_after", remove_after)]


def sweep_takes_pending() -> list[Patch]:
    original = CompletedSnapshots.sweep

    def sweep(self: Any, before: CheckpointId | None = None) -> Any:
        found = original(self, before)
        return None if found is None else replace(found, before=None)

    return [(CompletedSnapshots, "sweep", sweep)]


def unclaimed_removed() -> list[Patch]:
    original = CompletedSnapshots.__init__

    def init(self: Any, retained: int, restored: Any) -> None:
        original(self, retained, restored if restored is None else replace(restored, owned=True))

    return [(CompletedSnapshots, "__init__", init)]


def aborted_referred() -> list[Patch]:
    """Files of a checkpoint are referred to before it is complete."""
    original = Uploads.remember

    def remember(self: Any, checkpoint_id: CheckpointId, refs: Any) -> None:
        original(self, checkpoint_id, refs)
        self.complete(checkpoint_id)

    return [(Uploads, "remember", remember)]
