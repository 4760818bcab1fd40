"""A `StateWriter` that puts the files of one operator into folders by state (`model.state_files`)."""

from __future__ import annotations

from pathlib import Path

from unistream.base.ids import OperatorUid
from unistream.model.file_ref import FileRef
from unistream.model.state_files import file_hint
from unistream.port.storage import StateFile, StateWriter


class FolderWriter:
    """`unistream.port.storage.StateWriter` whose hints are names of states of `uid`.

    Args:
        writer: Of the snapshot's directory.
    """

    def __init__(self, writer: StateWriter, uid: OperatorUid) -> None:
        self._writer = writer
        self._uid = uid

    @property
    def bytes_written(self) -> int:
        """Of all operators."""
        return self._writer.bytes_written

    def write(self, name_hint: str, content: bytes | memoryview) -> FileRef:
        """A list of operator state."""
        return self._writer.write(file_hint(self._uid, name_hint, "msgpack"), content)

    def open(self, name_hint: str) -> StateFile:
        """A table."""
        return self._writer.open(file_hint(self._uid, name_hint, "arrow"))

    def copy(self, name_hint: str, path: Path, *, shared: bool = False) -> FileRef:
        """A backend's own file, of no state alone: it stays where the writer puts it."""
        return self._writer.copy(name_hint, path, shared=shared)
