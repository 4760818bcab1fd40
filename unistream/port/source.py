"""Sources after FLIP-27: splits are discovered and assigned by the JobMaster, read by subtasks.

    SplitDiscovery (master, I/O)  ->  core.split_assignment (pure)  ->  SourceReader (worker)

Positions are state: a reader's snapshot is its splits, each with the position to read next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.positions import SourcePositions
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.model.time_range import TimeRange
from unistream.port.metrics import Metrics

DEAD_LETTERS_TAG: Final = "dead-letters"
"""Side output of a source for records that it could not decode."""

TAG_CHARS_MAX: Final = 200  # it is in the names of operators and in errors


def check_tag(tag: object, what: str) -> str:
    """The tag of a side output of a user's own. Raises ConfigError.

    >>> check_tag("late rows", "side_output")
    'late rows'
    """
    if not isinstance(tag, str) or not 0 < len(tag) <= TAG_CHARS_MAX or not tag.isprintable():
        raise ConfigError(
            f"{what}: the tag of a side output has 1 to {TAG_CHARS_MAX} printable characters, not {tag!r:.80}"
        )
    if tag == DEAD_LETTERS_TAG:
        raise ConfigError(f"{what}: the tag {tag!r} is that of rows that fail; choose another one")
    return tag


class SplitDiscovery(Protocol):
    """Lists the splits of a source; runs in the master, made from `SourceInfo.options` alone."""

    def discover(self) -> Sequence[Split]:
        """All splits that exist now, each at its start position. The same id = the same split.

        Raises:
            ConfigError: the topic, path, … does not exist; names it.
            Unreachable: the system did not answer within its timeout.
        """

    def close(self) -> None: ...


@runtime_checkable
class GrowingDiscovery(Protocol):
    """A `SplitDiscovery` of a system that grows while it is read, as a topic gets partitions or a table gets
    files: it gets the splits found before, or the position that it gave (`FoundSplits.position`). Without it
    `discover` is called each time, and sets the positions of new splits."""

    def find(self, known: KnownSplits | None) -> FoundSplits:
        """The splits that exist now.

        Args:
            known: The splits found before. Others are new since the job began, so they are read from their
                beginning, whatever the start positions of the first ones. None: a first start.

        Raises:
            ConfigError: as `discover`, or the source was replaced by another one of the same name
                (`KnownSplits.origin`), in which the positions mean nothing.
            Unreachable: the system did not answer within its timeout.
        """


@runtime_checkable
class PositionedDiscovery(Protocol):
    """A `SplitDiscovery` whose source can begin at positions that a sink has recorded (`SourcePositions`)."""

    def find_at(self, positions: SourcePositions) -> FoundSplits:
        """The splits that exist now, each at its recorded position; one that has none at its beginning.

        Raises:
            ConfigError: the positions are those of another source, or what follows them is not there.
            Unreachable: the system did not answer within its timeout.
        """


@runtime_checkable
class RecordedDiscovery(Protocol):
    """A `SplitDiscovery` of a bounded source that contains what a job has read from another one, and how far
    (`unistream.port.sink.RecordsPositions`)."""

    def find_recorded(self, connector: str, name: str) -> tuple[FoundSplits, SourcePositions]:
        """The splits, and up to which positions of the source `name` they contain everything.

        Raises:
            ConfigError: that is not known, or they contain more than that.
            Unreachable: the system did not answer within its timeout.
        """


def _one_phase(phase: int, newest: int | None) -> None:
    raise AssertionError(f"phase {phase} of a source without phases ({newest=})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderContext:
    """What a reader may use.

    Attributes:
        wake: Thread-safe; call it when `poll` may have rows (after it returned `Idle`).
        request_split: Requests one more split from the master (pulling sources only).
        request_phase: For a source with phases (`SourceInfo.phases`): requests a split of that phase, which
            says that all rows of the former one were returned here. Its second argument: the greatest event
            time (ms) among them, for `PhasedReader.begin_phase`.
        reads_ahead: Rows may be read by a thread before `poll` asks for them. Not in a simulation, whose runs
            are the same each time.
    """

    index: int
    parallelism: int
    wake: Callable[[], None]
    request_split: Callable[[], None]
    metrics: Metrics
    request_phase: Callable[[int, int | None], None] = _one_phase
    reads_ahead: bool = True


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one split, n > 0. `dead_letters`: records that could not be decoded, for the side output
    `DEAD_LETTERS_TAG`, in the columns of `SendsDeadLetters.dead_letter_schema`; then n may be 0."""

    split_id: str
    records: pa.RecordBatch
    timestamps: pa.Int64Array | None = None  # ms, when the system carries one (Kafka record time)
    dead_letters: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing now. Poll again after `wake`, or in `retry_ms` at the latest (None = only after wake)."""

    retry_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SplitFinished:
    """This split has been read to its end."""

    split_id: str


@dataclass(frozen=True, slots=True)
class Exhausted:
    """All assigned splits are read and no more will come."""


Polled = Rows | Idle | SplitFinished | Exhausted


class SourceReader(Protocol):
    """Reads the splits of one subtask; called from the task's thread only."""

    def open(self, context: ReaderContext) -> None: ...

    def add_splits(self, splits: Sequence[Split]) -> None: ...

    def no_more_splits(self) -> None: ...

    def poll(self) -> Polled:
        """One bounded piece of work; blocks at most a few milliseconds."""

    def snapshot(self) -> Sequence[Split]:
        """Unfinished splits; each position is one past the last row returned by `poll`."""

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class PhasedReader(SourceReader, Protocol):
    """The reader of a source with phases: all subtasks read `HISTORY` to its end, then they read `LIVE`.

    It gets splits of one phase at a time. After the last row of the history it calls
    `ReaderContext.request_phase(LIVE, …)` once, and is idle until `begin_phase`.
    """

    def begin_phase(self, phase: int, newest: int | None) -> None:
        """Called before splits of `phase` come; may be repeated. `newest`: the greatest event time (ms) that
        the subtasks have reported for the former phase. None: not known, as for splits that are restored."""

    def no_more_splits_of(self, phase: int) -> None:
        """Called when one phase has no more splits, as `no_more_splits`; may be repeated."""


class Source(Protocol):
    """What a user gives to `Environment.from_source`. Picklable; holds configuration only."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows that a reader gives. The first access, on the client, may do I/O (a file's
        header)."""

    def info(self) -> SourceInfo:
        """How the master discovers the splits."""

    def create_reader(self) -> SourceReader: ...


@runtime_checkable
class ChecksEventTimes(Protocol):
    """A source for which a record without an event time is a record that it cannot read, like any other: it
    says where it is, and fails, skips it, or sends it to the side output, as it is configured."""

    def timed_by(self, column: str) -> Source:
        """The same source, whose rows all have an event time in `column` (`model.event_time`), and in each
        one that was named before."""


def timed(source: Source, column: str) -> Source:
    """`source` itself, if it cannot tell its records apart."""
    return source.timed_by(column) if isinstance(source, ChecksEventTimes) else source


@runtime_checkable
class WithHistory(Protocol):
    """A source whose rows are also in a bounded one, from which `unistream backfill` computes results."""

    @property
    def history(self) -> Source:
        """A bounded source with the same columns, in the same order."""


@runtime_checkable
class WithEventTimeSpan(Protocol):
    """A bounded source that knows its event times without reading its rows."""

    def event_time_span(self, column: str) -> tuple[int, int] | None:
        """The least and the greatest value of `column` (ms since 1970), by statistics; None: they do not say.

        Raises:
            ConfigError, Unreachable: as the discovery of its splits.
        """


@runtime_checkable
class WithTimeRange(Protocol):
    """A source that need not read what is outside of a range of event time."""

    def within(self, column: str, range_: TimeRange) -> Source:
        """The same source, of which rows with a `column` outside of the range may be missing."""


@runtime_checkable
class SendsDeadLetters(Protocol):
    """A source that can send what it cannot decode to a side output, instead of failing."""

    @property
    def dead_letter_schema(self) -> pa.Schema | None:
        """Columns of the side output: the raw bytes, their origin, and why they are bad. None: this source is
        configured to handle them otherwise."""
