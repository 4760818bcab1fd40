"""`port.ha.HaStore` and `port.storage.ArtifactStore` in memory, which survive all processes.

`Pointers` is the durable state; each leader writes it by a `SimHaStore` of its own, which has its epoch and
fails as stores do: for certain, or with an unknown outcome.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from unistream.base.errors import CorruptSnapshot, Fenced, OutcomeUnknown, Unreachable
from unistream.base.ids import JobId, LeaderEpoch
from unistream.model.stored_job import ArtifactName, CheckpointPointer, StoredRequest, StoredResult
from unistream.port.ha import HaEntry
from unistream.port.storage import Created
from unistream.testing.sim.world import World

FALLIBLE: Final = ("checkpoints", "counter", "results")  # users repeat no submission and no request


class Pointers:
    """The durable state.

    Attributes:
        values: By name.
        artifacts: By name.
        pointed: Directories that a pointer has ever named.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.values: dict[str, HaEntry] = {}
        self.artifacts: dict[str, bytes] = {}
        self.pointed: set[str] = set()

    def request(self, job: JobId) -> StoredRequest:
        """What was accepted for a job, and is to be done."""
        there = self.values.get(f"jobs/{job}/request")
        return StoredRequest() if there is None else msgspec.json.decode(there.value, type=StoredRequest)


class SimHaStore:
    """The store of the leader of `epoch`.

    Args:
        newest: The epoch of the newest leader.
        on_pointer: Called with the directory of a snapshot that counts from now on.
        on_result: Called with the result of a job that has ended.
        unsure: Directories of snapshots of which their leader does not know whether they count.
    """

    def __init__(
        self,
        pointers: Pointers,
        epoch: LeaderEpoch,
        *,
        newest: Callable[[], LeaderEpoch],
        on_pointer: Callable[[str], None],
        on_result: Callable[[JobId, str], None],
        unsure: set[str],
    ) -> None:
        self._pointers = pointers
        self._world = pointers.world
        self._epoch = epoch
        self._newest = newest
        self._on_pointer = on_pointer
        self._on_result = on_result
        self._unsure = unsure

    @property
    def epoch(self) -> LeaderEpoch:
        return self._epoch

    def leads(self) -> bool:
        return True  # the simulation has no suspension: an older leader learns by its writes

    def read(self, name: str) -> HaEntry | None:
        return self._pointers.values.get(name)

    def children(self, name: str) -> Sequence[str]:
        prefix = f"{name}/" if name else ""
        below = (key.removeprefix(prefix) for key in self._pointers.values if key.startswith(prefix))
        return sorted({key.partition("/")[0] for key in below})

    def create(self, name: str, value: bytes) -> Created:
        there = self._pointers.values.get(name)
        directory = _directory(name, value)
        if directory is not None:
            self._unsure.add(directory)
        unknown = self._may_fail(name)
        if there is not None and there.value != value:
            raise Fenced(f"{name} has another value")
        if there is None:
            self._write(name, value, 0)
        if unknown:
            raise OutcomeUnknown("no answer, and it was written")
        if directory is not None:
            self._unsure.discard(directory)
        return Created.NEW if there is None else Created.EXISTS

    def replace(self, name: str, value: bytes, version: int) -> int:
        unknown = self._may_fail(name)
        there = self._pointers.values.get(name)
        if there is None or there.version != version:
            raise Fenced(f"{name} has another version")
        self._write(name, value, version + 1)
        if unknown:
            raise OutcomeUnknown("no answer, and it was written")
        return version + 1

    def remove(self, name: str) -> None:
        self.check()
        for key in [key for key in self._pointers.values if key == name or key.startswith(f"{name}/")]:
            del self._pointers.values[key]

    def check(self) -> None:
        if self._epoch < self._newest():
            self._world.sometimes("a pointer of an older leader was fenced")
            raise Fenced(f"epoch {self._newest()} leads, {self._epoch} does not")

    def _may_fail(self, name: str) -> bool:
        """True: it is written, and the answer is lost."""
        self.check()
        if not any(part in FALLIBLE for part in name.split("/")):
            return False
        if self._world.chance(self._world.faults.store_fail):
            self._world.sometimes("a pointer was not written")
            raise Unreachable("the store does not answer")
        if not self._world.chance(self._world.faults.store_unknown):
            return False
        if self._world.chance(0.5):
            self._world.sometimes("a pointer was not written and its outcome is unknown")
            raise OutcomeUnknown("no answer, and it was not written")
        self._world.sometimes("a pointer was written and its outcome is unknown")
        return True

    def _write(self, name: str, value: bytes, version: int) -> None:
        self._pointers.values[name] = HaEntry(value, version)
        directory = _directory(name, value)
        if directory is not None:
            self._pointers.pointed.add(directory)
            self._on_pointer(directory)
        elif name.startswith("results/") and version == 0:
            result = msgspec.json.decode(value, type=StoredResult)
            self._on_result(result.job, result.state)


def _directory(name: str, value: bytes) -> str | None:
    """That a pointer to a snapshot names; None: it points to something else."""
    if "/checkpoints/" not in name:
        return None
    return msgspec.json.decode(value, type=CheckpointPointer).directory


class SimArtifacts:
    """What lasts of the code and the descriptions of jobs."""

    def __init__(self, pointers: Pointers) -> None:
        self._stored = pointers.artifacts

    def put(self, content: bytes, epoch: LeaderEpoch) -> str:
        name = str(ArtifactName(hashlib.sha256(content).hexdigest(), epoch))
        self._stored[name] = content
        return name

    def get(self, name: str) -> bytes:
        try:
            return self._stored[name]
        except KeyError:
            raise CorruptSnapshot(f"{name} is missing") from None

    def names(self) -> Sequence[str]:
        return list(self._stored)

    def remove(self, name: str) -> None:
        self._stored.pop(name, None)

    def remove_unfinished(self, newest: LeaderEpoch) -> None:
        """There is none: what is put is there at once."""
