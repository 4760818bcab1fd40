"""One replay: rows of letters are processed again by the operator that had failed, and what is behind it.

    lock ─► what a killed one has left ─► choose letters ─► begin (durable) ─► job ─► end (durable)

Each step asks what is if the process dies right before or behind it:

    before `begin`      nothing is there: the letters are chosen again
    behind it           a replay that is not done. Its job has a complete checkpoint: it goes on from there,
                        which commits what that lists. None, and letters in `replayed`: it had ended. None,
                        and no letters there: it has committed nothing, and is withdrawn
    before `end`        the same: it had ended
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unistream.api.environment import Environment
from unistream.base import process_mark
from unistream.base.clock import Clock, SystemClock
from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError
from unistream.client.remote.job_client import JobResult
from unistream.core.graph import uid_of
from unistream.dead_letters.corrections import Corrections, corrected
from unistream.dead_letters.graph import replay_environment, replayed_part
from unistream.dead_letters.ledger import FORMAT, FORMAT_OF_CLUSTERS, Ledger, ReplayEnd, ReplayOrder
from unistream.dead_letters.records import own, owner, read_again, source_named
from unistream.dead_letters.table import Letters
from unistream.operator.replayed import REPLAYED_COLUMNS

LETTERS_MAX: Final = 10_000_000  # of one replay: they are read into memory, some 1 kB each


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which letters. None: whatever they have."""

    operator: str | None = None
    error_type: str | None = None
    ids: tuple[str, ...] = ()
    limit: int | None = None

    def mask(self, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
        """The letters of a table of them, by operator (uid or name), error and beginning of the id."""
        mask: pa.ChunkedArray | pa.Array = pa.array([True] * rows.num_rows)
        if self.operator is not None:
            uids, names = rows["operator_uid"], rows["operator"]
            mask = pc.and_(mask, pc.or_(pc.equal(uids, self.operator), pc.equal(names, self.operator)))
        if self.error_type is not None:
            mask = pc.and_(mask, pc.equal(rows["error_type"], self.error_type))
        if self.ids:
            of_ids = [pc.starts_with(rows["letter"], one) for one in self.ids]
            any_of = of_ids[0]
            for one in of_ids[1:]:
                any_of = pc.or_(any_of, one)
            mask = pc.and_(mask, any_of)
        return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """What a replay has done.

    Attributes:
        replay: Its id; None: there was nothing to replay.
        letters: How many letters were replayed.
        failed_again: Of those, how many are letters again.
        unread: Of a source: how many more there are that are still no rows. They stay as they are.
        result: Of its job, which may have failed; None: it had ended before, and its process was killed
            before it noted that.
    """

    replay: str | None
    letters: int
    failed_again: int = 0
    unread: int = 0
    result: JobResult | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """`order` None: there was nothing to replay. `unread`: see `ReplayOutcome`."""

    order: ReplayOrder | None
    unread: int


@dataclass(frozen=True, slots=True)
class _Selected:
    """What is replayed. `operator`: its uid; `unread`: how many more letters are still no rows."""

    operator: str
    letters: pa.Table
    unread: int = 0


def _oldest(rows: pa.Table, chosen: Chosen) -> pa.Array:
    """The places of as many letters as are wanted."""
    places = pa.array(range(rows.num_rows), pa.int64())
    most = chosen.limit or LETTERS_MAX
    return places if rows.num_rows <= most else pc.sort_indices(rows, [("time", "ascending")])[:most]


@dataclass(slots=True, kw_only=True)
class Replay:
    """One replay of the letters of a table, whose lock the caller holds.

    Attributes:
        build: Adds the pipeline to an environment, with sinks that append.
        corrections: Of some of the letters; then only these are replayed. None: all as they are.
        on_step: Called with a sentence for people.
    """

    letters: Letters
    ledger: Ledger
    environment: Environment
    pipeline: str
    target: str
    from_empty_state: bool = False
    corrections: Corrections | None = None
    on_step: Callable[[str], None] = lambda _: None
    clock: Clock = field(default_factory=SystemClock)

    def run(self, chosen: Chosen) -> ReplayOutcome:
        """Ends what a killed replay has left, then replays the chosen letters that were not replayed.

        Raises:
            ConfigError: letters of several operators, or a pipeline that cannot be replayed from there.
        """
        for order in self.ledger.unfinished():
            finished = self._finished(order)
            if finished is not None:
                return finished
        begun = self.begin(chosen, uuid.uuid4().hex)
        if begun.order is None:
            return ReplayOutcome(replay=None, letters=0, unread=begun.unread)
        return replace(self._run(begun.order, None), unread=begun.unread)

    def begin(self, chosen: Chosen, replay: str, *, cluster: str = "", mark: str = "") -> Begun:
        """A replay of the chosen letters that were not replayed, durable when it returns. Raises as `run`;
        then nothing was begun.

        Args:
            chosen: See `Chosen`.
            replay: Its id.
            cluster: See `ReplayOrder`.
            mark: See `ReplayOrder`.
        """
        selected = self._choose(chosen)
        if not selected.letters.num_rows:
            return Begun(None, selected.unread)
        order = ReplayOrder(
            id=replay,
            operator=selected.operator,
            pipeline=self.pipeline,
            letters=selected.letters.num_rows,
            host=socket.gethostname(),
            pid=os.getpid(),
            begun_ms=self.clock.wall_ms(),
            cluster=cluster,
            mark=mark,
            format=FORMAT_OF_CLUSTERS if cluster else FORMAT,
        )
        self.environment_of(order)  # raises before anything is written
        self.ledger.begin(order, selected.letters.select(REPLAYED_COLUMNS.names))
        crash_point("replay.begun")
        return Begun(order, selected.unread)

    def _choose(self, chosen: Chosen) -> _Selected:
        if self.corrections is not None:
            self.letters = corrected(self.letters, self.corrections)
            former = pc.sum(pc.invert(self._is_left(Chosen()))).as_py()
            if former:
                self.on_step(
                    f"{former:,} of the corrected letters were replayed already, and stay as they are"
                )
        if self.letters.records is not None:
            return self._choose_records(chosen, self.letters.records)
        rows = self.letters.rows.filter(self._is_left(chosen))
        operators = sorted(set(rows["operator_uid"].to_pylist()))
        if len(operators) > 1:
            raise ConfigError(
                f"there are letters of {len(operators)} operators ({', '.join(operators[:10])}); give one by "
                "--operator"
            )
        rows = rows.take(_oldest(rows, chosen))
        return _Selected("".join(operators), rows)

    def _choose_records(self, chosen: Chosen, records: pa.Table) -> _Selected:
        graph = self.environment.stream_graph()
        source = None if chosen.operator is None else source_named(graph, chosen.operator)
        if source is None:
            mask = self._is_left(chosen)
        else:
            mask = pc.and_(self._is_left(replace(chosen, operator=None)), own(source, records))
        rows, records = self.letters.rows.filter(mask), records.filter(mask)
        if not rows.num_rows:
            return _Selected("", rows)
        oldest = _oldest(rows, chosen)
        rows, records = rows.take(oldest), records.take(oldest)
        source = source or owner(graph, records)
        reread = read_again(source, rows, records)
        if reread.unread:
            letter, reason = reread.unread[0]
            self.on_step(
                f"{len(reread.unread):,} letters are still no rows, and stay as they are; {letter}: {reason}"
            )
        return _Selected(uid_of(source), reread.letters, len(reread.unread))

    def _is_left(self, chosen: Chosen) -> pa.ChunkedArray:
        """Chosen, and not replayed yet."""
        rows = self.letters.rows
        done = self.ledger.replayed()["letter"].combine_chunks()
        return pc.and_(chosen.mask(rows), pc.invert(pc.is_in(rows["letter"], done)))

    # --- a replay that has begun ----------------------------------------------------------------------

    def _finished(self, order: ReplayOrder) -> ReplayOutcome | None:
        """None: it has committed nothing, and is withdrawn; or a cluster has ended it."""
        if order.cluster and process_mark.runs(order.mark) is not False:
            self._of_cluster(order)
            return None
        if order.host != socket.gethostname():
            raise ConfigError(
                f"replay {order.id} of {order.letters} letters was begun on {order.host} (process "
                f"{order.pid}) and is not done: let it end there, or run the same command there"
            )
        checkpoint = self.ledger.newest_checkpoint(order.id)
        if checkpoint is not None:
            self.on_step(f"goes on with replay {order.id}, from {checkpoint}")
            return self._run(order, checkpoint)
        if self.ledger.is_noted(order):
            self.on_step(f"replay {order.id} had ended")
            self.ledger.end(ReplayEnd(id=order.id, ended_ms=self.clock.wall_ms()))
            return ReplayOutcome(replay=order.id, letters=order.letters)
        self.on_step(f"replay {order.id} was cut off before it had committed anything; it begins again")
        self.ledger.withdraw(order)
        return None

    def _of_cluster(self, order: ReplayOrder) -> None:
        """Raises ConfigError: it has not ended, as far as the record says."""
        if not self.ledger.is_recorded(order):
            raise ConfigError(
                f"replay {order.id} of {order.letters} letters was begun by the web UI of cluster "
                f"{order.cluster} and is not done: see its job there. If that has failed, a replay on its "
                "page goes on with it"
            )
        self.on_step(f"replay {order.id} had ended")
        self.ledger.end(ReplayEnd(id=order.id, ended_ms=self.clock.wall_ms()))

    def _run(self, order: ReplayOrder, checkpoint: str | None) -> ReplayOutcome:
        environment = self.environment_of(order)
        with environment.execute_async(f"replay of {order.operator}"[:200], savepoint=checkpoint) as job:
            result = job.wait()
        if not result.is_success:
            return ReplayOutcome(replay=order.id, letters=0, result=result)
        crash_point("replay.finished")
        self.ledger.end(ReplayEnd(id=order.id, ended_ms=self.clock.wall_ms(), job=result.job))
        crash_point("replay.recorded")
        again = sum(result.dead_letters.values())
        return ReplayOutcome(replay=order.id, letters=order.letters, failed_again=again, result=result)

    def environment_of(self, order: ReplayOrder) -> Environment:
        """The pipeline of its job. Raises ConfigError: as `run`."""
        part = replayed_part(
            self.environment.stream_graph(), order.operator, from_empty_state=self.from_empty_state
        )
        return replay_environment(part, self.environment, self.ledger, order.id, self.target)
