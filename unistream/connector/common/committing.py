"""What the committers of several sinks share: stored formats, the remembered target, and why a commit is
refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot
from unistream.base.object_stores import file_system
from unistream.port.sink import SinkContext

TARGET_FORMAT: Final = 1


class Formatted(Protocol):
    """A stored record with a format version."""

    @property
    def format(self) -> int: ...


class CommittedTarget(Protocol):
    """A table or folder after the last commit to it; a frozen `msgspec.Struct`.

    Attributes:
        address: Its path or URL.
        checkpoint_id: The newest committed checkpoint; 0: nothing is committed yet.
    """

    @property
    def address(self) -> str: ...
    @property
    def checkpoint_id(self) -> int: ...
    @property
    def format(self) -> int: ...


class CommittableFile(Protocol):
    """A staged file, as listed in a committable."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def rows(self) -> int: ...


F = TypeVar("F", bound=Formatted)
T = TypeVar("T", bound=CommittedTarget)
S = TypeVar("S", bound=CommittableFile)


def decode_formatted(
    decoder: msgspec.msgpack.Decoder[F],
    content: bytes,
    *,
    what: str,
    expected: int = TARGET_FORMAT,
    least: int | None = None,
) -> F:
    """Raises CorruptSnapshot if `content` is unreadable or has another format than `expected` (or one from
    `least` to it)."""
    try:
        found = decoder.decode(content)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"{what} is unreadable: {error}") from error
    if not (expected if least is None else least) <= found.format <= expected:
        raise CorruptSnapshot(f"{what} has format {found.format}, this version reads {expected}")
    return found


class TargetMemory(Generic[T]):
    """The target of a committer as of its last commit. Stored in every snapshot, so that after a restore the
    committer refuses a target that was removed or replaced.

    Args:
        kind: The stored type.
        sink: The name of the connector, for messages.
        address: The current target. A remembered one with another address is ignored: the sink has moved.
    """

    def __init__(self, kind: type[T], sink: str, address: str) -> None:
        self._decoder: Any = msgspec.msgpack.Decoder(kind)
        self._sink = sink
        self._address = address
        self._target: Any = None

    @property
    def current(self) -> T | None:
        """The remembered target, if it has the current address."""
        target: T | None = self._target
        return target if target is not None and target.address == self._address else None

    def restore(self, items: Sequence[bytes]) -> None:
        """Takes the newest of `items`. Raises CorruptSnapshot."""
        what = f"the committer state of a {self._sink} sink"
        found = [decode_formatted(self._decoder, item, what=what) for item in items]
        self._target = max(found, key=lambda target: target.checkpoint_id, default=None)

    def snapshot(self) -> tuple[bytes, ...]:
        target = self._target
        return (msgspec.msgpack.encode(target),) if target is not None and target.checkpoint_id else ()

    def remember(self, target: T) -> None:
        """Keeps the highest checkpoint of those remembered for this address."""
        known = 0 if self.current is None else self.current.checkpoint_id
        self._target = msgspec.structs.replace(
            target,  # type: ignore[type-var]
            checkpoint_id=max(known, target.checkpoint_id),
        )


def kept_snapshot(directory: str) -> str:
    """The `directory`, for messages; "": it is known that there is no snapshot any more."""
    try:
        system, path = file_system(directory)
        return directory if not directory or system.exists(path) else ""
    except (ConfigError, ImportError, OSError, ValueError):  # nobody knows from here
        return directory


def changed_target(where: str, context: SinkContext, done: str, now: str) -> ConfigError:
    """The error that `where` is not the target that was committed to; `done` and `now`: what was there and
    what is there."""
    return ConfigError(
        f"{where}: sink {context.sink_uid!r} {done}, but {now}; nothing was written. Restore that state, or "
        "start from a savepoint that is no newer than what is there; or, to continue without the lost rows, "
        "give the sink another uid and allow non-restored state"
    )


def overwrites_once(where: str) -> ConfigError:
    """The refusal of a sink that replaces partitions, in a job that commits more than once."""
    return ConfigError(
        f"{where}: mode='overwrite-partitions' replaces partitions once, at the end of a job, and this job "
        "takes checkpoints, each of which would replace the rows of the one before; run it with "
        "execution.runtime-mode: BATCH, or use mode='append'"
    )


def rewound(where: str, context: SinkContext, last: int, choices: str) -> ConfigError:
    """The target has checkpoint `last`, which is newer than the restored one; `choices`: other ways to go
    on."""
    return ConfigError(
        f"{where} holds the output of sink {context.sink_uid!r} up to checkpoint {last}, but the job was "
        f"restored from checkpoint {context.restored or 0}: continuing would write the rows in between a "
        f"second time. Restore from checkpoint {last} or a later one{choices}"
    )


def uncommitted_elsewhere(context: SinkContext, address: str, former: str, why: str) -> ConfigError:
    """The restored snapshot lists output for a former target that is not known to be committed there."""
    return ConfigError(
        f"sink {context.sink_uid!r} now writes to {address}, but the restored checkpoint holds output for "
        f"{former}: {why}; commit it there first, with `unistream savepoint finalize` or the former "
        "settings; or, to continue without it, give the sink another uid and allow non-restored state"
    )


def check_staged(where: str, files: Iterable[S], size_of: Callable[[S], int | None], hint: str = "") -> None:
    """Raises CorruptSnapshot unless all files exist with their sizes; `size_of` returns None if there is
    none."""
    for file in files:
        size = size_of(file)
        if size != file.size:
            found = "is missing" if size is None else f"has {size} B"
            raise CorruptSnapshot(
                f"{where}: staged file {file.path} ({file.size} B, {file.rows} rows) {found}{hint}; nothing "
                "of this checkpoint was committed"
            )
