"""Which stored files a snapshot refers to."""

from __future__ import annotations

from collections.abc import Iterator

from unistream.model.snapshot import FileRef, Manifest, OperatorStateHandle, TaskSnapshot


def referenced_files(manifest: Manifest) -> Iterator[FileRef]:
    """Every state file of a snapshot; one that is named twice comes twice."""
    for vertex in manifest.vertices:
        for subtask in vertex.subtasks:
            if subtask is not None:
                yield from files_of_task(subtask)


def files_of_task(task: TaskSnapshot) -> Iterator[FileRef]:
    """Every state file that one subtask acknowledged."""
    for handle in task.operators.values():
        yield from files_of_operator(handle)
    if task.in_flight is not None:
        yield task.in_flight.file


def files_of_operator(handle: OperatorStateHandle) -> Iterator[FileRef]:
    """Every state file of one operator of one subtask."""
    yield from (keyed.file for keyed in handle.keyed)
    yield from (stored.file for stored in handle.lists if stored.file)
    yield from (file.ref for native in handle.native for file in native.files)
