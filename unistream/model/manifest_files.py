"""Which stored files a snapshot refers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import structs

from unistream.model.file_ref import FileRef
from unistream.model.snapshot import Manifest, NativeHandle, OperatorStateHandle, TaskSnapshot


def referenced_files(manifest: Manifest) -> Iterator[FileRef]:
    """Every state file of a snapshot; one that is referenced twice occurs twice."""
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


def with_files(manifest: Manifest, instead: Mapping[FileRef, FileRef]) -> Manifest:
    """The manifest with some files of a backend's own format (only those are shared) replaced."""

    def of_native(native: NativeHandle) -> NativeHandle:
        files = tuple(structs.replace(file, ref=instead.get(file.ref, file.ref)) for file in native.files)
        return structs.replace(native, files=files)

    def of_operator(handle: OperatorStateHandle) -> OperatorStateHandle:
        return (
            structs.replace(handle, native=tuple(map(of_native, handle.native))) if handle.native else handle
        )

    def of_task(task: TaskSnapshot | None) -> TaskSnapshot | None:
        if task is None:
            return None
        operators = {uid: of_operator(handle) for uid, handle in task.operators.items()}
        return structs.replace(task, operators=operators)

    vertices = (
        structs.replace(vertex, subtasks=tuple(map(of_task, vertex.subtasks))) for vertex in manifest.vertices
    )
    return structs.replace(manifest, vertices=tuple(vertices))
