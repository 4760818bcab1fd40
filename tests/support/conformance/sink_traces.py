"""Recorded traces of a sink's writer and committer: each subtask is replayed on our operators.

The input of a subtask follows from its calls: a first row, checkpoints, notifications, the end of input. It
is restored from its own snapshot, or from those of the trace that its scenario names (``restore d with …``),
redistributed among its subtasks; without that trace, from what it committed and restored at its start. In
batch mode writer and committer ran one after the other, so their calls are compared separately.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa

from tests.support.conformance.case import Case, Comparison, Json, SkipCase
from unistream.base.errors import OutcomeUnknown
from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.operator.sink.committer import COMMITTER_STATE, CommitterOperator
from unistream.operator.sink.writer import WRITER_STATE, SinkWriterOperator
from unistream.port.operator import CommitPermit
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    Committer,
    Sink,
    SinkContext,
    SinkWriter,
)
from unistream.testing.harness import OperatorHarness, restore_state

ANSWERS: Final = {
    "-> retryLater": CommitOutcome.RETRY,
    "-> signalAlreadyCommitted": CommitOutcome.ALREADY_COMMITTED,
    "-> signalFailedWithKnownReason": CommitOutcome.FAILED,
}
THROWS: Final = re.compile(r"-> (signalFailedWithUnknownReason|throws?\b.*)")


@dataclass
class TracingSink:
    """Logs every call in the words of the recorded traces. `answers`: results of the next commits."""

    log: list[str]
    answers: list[str]
    attempt: int = 0
    name: str = "traced"
    global_committer: bool = False

    def check(self, schema: pa.Schema | None) -> None:
        """Any schema is accepted."""

    def create_writer(self) -> SinkWriter:
        return _Writer(self)

    def create_committer(self) -> Committer | None:
        return _Committer(self)


class _Writer:
    def __init__(self, sink: TracingSink) -> None:
        self.sink, self.count, self.written = sink, 0, False
        self.index = 0

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        self.index = context.index
        states = ",".join(state.decode() for state in restored)
        self.sink.log.append(
            "writer createWriter" if context.restored is None else f"writer restoreWriter[{states}]"
        )

    def write(self, batch: Batch) -> None:
        if not self.written:
            self.sink.log.append("writer write(first)")
        self.written = True

    def flush(self, end_of_input: bool) -> None:
        self.sink.log.append(f"writer flush(endOfInput={str(end_of_input).lower()})")

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        name = f"txn{self.index}.{self.sink.attempt}.{self.count}"
        self.count += 1
        self.sink.log.append(f"writer prepareCommit->[{name}]")
        return [name.encode()]

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        self.sink.log.append(f"writer snapshotWriter({checkpoint_id})")
        return [f"ws{self.index}".encode()]

    def close(self) -> None:
        self.sink.log.append("writer closeWriter")


class _Committer:
    def __init__(self, sink: TracingSink) -> None:
        self.sink, self.tries = sink, 0

    def open(self, context: SinkContext) -> None:
        restored = "-" if context.restored is None else str(context.restored)
        self.sink.log.append(f"committer createCommitter(restoredCheckpoint={restored})")

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        retry = f"(retry {self.tries})" if self.tries else ""
        names = ",".join(payload.decode() + retry for payload in request.committables)
        self.sink.log.append(f"committer commit[{names}]")
        answer = self.sink.answers.pop(0) if self.sink.answers else ""
        if not answer:
            self.tries = 0
            return CommitResult(CommitOutcome.COMMITTED)
        self.sink.log.append(answer)
        if THROWS.fullmatch(answer):
            raise OutcomeUnknown(answer)
        if answer not in ANSWERS:
            raise SkipCase(f"an answer that a committer cannot give: {answer}")
        self.tries = self.tries + 1 if ANSWERS[answer] is CommitOutcome.RETRY else 0
        return CommitResult(ANSWERS[answer])

    def close(self) -> None:
        self.sink.log.append("committer closeCommitter")


Snapshots = tuple[OperatorSnapshot, OperatorSnapshot]


class SinkOperators:
    """Writer and committer of one subtask of a sink, opened. `options`: of `OperatorHarness`."""

    def __init__(
        self, sink: Sink, states: tuple[OperatorState | None, OperatorState | None], **options: Any
    ) -> None:
        self.writer = OperatorHarness(SinkWriterOperator(sink), state=states[0], **options)
        self.committer = OperatorHarness(CommitterOperator(sink), state=states[1], **options)
        self.committer.open()
        self.writer.open()

    def snapshot(self, checkpoint_id: CheckpointId) -> Snapshots:
        self.writer.operator.prepare_snapshot_pre_barrier(checkpoint_id)
        self._forward()
        second = self.committer.snapshot(checkpoint_id)
        return self.writer.operator.snapshot_state(checkpoint_id), second

    def end_writer(self) -> None:
        self.writer.operator.end_input(0)
        self._forward()

    def close(self) -> None:
        self.committer.close()
        self.writer.close()

    def _forward(self) -> None:
        for batch in self.writer.batches():
            self.committer.operator.process_batch(batch, 0)
        self.writer.clear()


@dataclass
class _Subtask:
    """One subtask through all its attempts.

    Attributes:
        before: Snapshots, by checkpoint, of the subtasks that it may be restored from.
        result: How its last attempt ended.
    """

    index: int
    parallelism: int
    calls: list[str]
    checkpointing: bool
    before: Mapping[int, Sequence[Snapshots]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    taken: dict[int, Snapshots] = field(default_factory=dict)
    result: str = "RUNNING"

    def run(self) -> list[str]:
        starts = (
            [i for i, call in enumerate(self.calls) if "createCommitter" in call]
            if self.checkpointing
            else [0]
        )
        for attempt, (start, stop) in enumerate(zip(starts, [*starts[1:], len(self.calls)], strict=True)):
            self._attempt(attempt, self.calls[start:stop])
        return self.log

    def _attempt(self, number: int, calls: list[str]) -> None:
        self.result = "RUNNING"
        sink = TracingSink(self.log, _answers(calls), number)
        restored = re.search(r"restoredCheckpoint=(\d+)", calls[0])
        states = self._states(int(restored[1]), calls) if restored else (None, None)
        operators = SinkOperators(
            sink,
            states,
            index=self.index,
            parallelism=self.parallelism,
            checkpointing=self.checkpointing,
        )
        latest = 0
        for word in _stimuli(calls):
            match word.split():
                case ["rows"]:
                    operators.writer.process({"n": [1]})
                case ["end"]:
                    operators.end_writer()
                    operators.committer.operator.end_input(0)
                case ["checkpoint", text]:
                    latest = int(text)
                    self.taken[latest] = operators.snapshot(CheckpointId(latest))
                case ["complete"]:
                    try:
                        operators.committer.complete(latest)
                    except OutcomeUnknown:
                        self.result = "FAILED"
                        break
        if any("close" in call for call in calls):
            operators.close()
            self.result = "FINISHED" if self.result == "RUNNING" else self.result

    def _states(self, restored: int, calls: list[str]) -> tuple[OperatorState, OperatorState]:
        if restored in self.taken:
            writer, committer = self.taken[restored]
            return restore_state([writer], restored), restore_state([committer], restored)
        if restored in self.before:
            writers, committers = zip(*self.before[restored], strict=True)
            where = {"index": self.index, "parallelism": self.parallelism}
            return (
                restore_state(writers, restored, **where),
                restore_state(committers, restored, **where),
            )
        checkpoint = CheckpointId(restored)
        states = re.findall(r"restoreWriter\[(.*)\]", "\n".join(calls))
        names = [name.encode() for name in states[0].split(",") if name] if states else []
        before = calls[1 : next((i for i, c in enumerate(calls) if "writer" in c), len(calls))]
        groups = [re.findall(r"txn[\d.]+", call) for call in before if "commit[" in call]
        parts = [
            {
                "checkpoint_id": restored - len(groups) + 1 + number,
                "subtask": 0,
                "announced": len(group),
                "payloads": [name.encode() for name in group],
            }
            for number, group in enumerate(groups)
        ]
        items = [msgspec.msgpack.encode(parts)] if parts else []
        return (
            OperatorState(checkpoint_id=checkpoint, lists={WRITER_STATE: names} if names else {}),
            OperatorState(checkpoint_id=checkpoint, lists={COMMITTER_STATE: items} if items else {}),
        )


def _answers(calls: list[str]) -> list[str]:
    """The result of each commit; empty: it was committed."""
    following = [*calls[1:], ""]
    return [
        after if after.startswith("->") else ""
        for call, after in zip(calls, following, strict=True)
        if call.startswith("committer commit")
    ]


def _stimuli(calls: list[str]) -> list[str]:
    """The input of operators that made these calls."""
    found: list[str] = []
    started = False
    for call in calls:
        last = found[-1] if found else ""
        if call.startswith("writer createWriter") or call.startswith("writer restoreWriter"):
            started = True
        elif call == "writer write(first)":
            found.append("rows")
        elif call == "writer flush(endOfInput=true)":
            found.append("end")
        elif number := re.match(r"writer snapshotWriter\((\d+)\)", call):
            found.append(f"checkpoint {number[1]}")
        elif call.startswith("committer commit") and started and last not in ("complete", "end"):
            found.append("complete")
    return found


def read(name: str, trace: Json, section: list[Json]) -> Iterator[Case]:
    """The calls, and the result of the job."""
    yield Case(name, partial(_calls, trace, section))
    yield Case(f"{name}: the job's result", partial(_result, trace, section))


def _played(trace: Json, section: list[Json]) -> list[_Subtask]:
    """All subtasks of one trace."""
    names = sorted({name for segment in trace["segments"] for name in segment["perSubtask"]})
    if not all(re.fullmatch(r"subtask\d+", name) for name in names):
        raise SkipCase("subtasks without numbers")
    former = re.match(r"restore (\w+) with", trace["scenario"])
    found = [other for other in section if former is not None and other.get("id") == former[1]]
    before: dict[int, list[Snapshots]] = {}
    for other in _played(found[0], section) if found else []:
        for checkpoint, snapshots in other.taken.items():
            before.setdefault(checkpoint, []).append(snapshots)
    subtasks = []
    for name in names:
        calls = _calls_of(trace, name)
        checkpointing = any("snapshotWriter" in call for call in calls)
        number = int(name.removeprefix("subtask"))
        subtask = _Subtask(number, len(names), calls, checkpointing, before)
        subtask.run()
        subtasks.append(subtask)
    return subtasks


def _calls_of(trace: Json, name: str) -> list[str]:
    return [call for segment in trace["segments"] for call in segment["perSubtask"].get(name, [])]


def _calls(trace: Json, section: list[Json]) -> Comparison:
    expected: Json = {}
    actual: Json = {}
    for subtask in _played(trace, section):
        name = f"subtask{subtask.index}"
        expected[name] = _apart(_calls_of(trace, name), subtask.checkpointing)
        actual[name] = _apart(subtask.log, subtask.checkpointing)
    return Comparison(expected, actual)


def _result(trace: Json, section: list[Json]) -> Comparison:
    """A job has finished if all its subtasks have, and has failed if one of them has."""
    results = {subtask.result for subtask in _played(trace, section)}
    if results == {"FINISHED"} and any("cancel" in segment["segment"] for segment in trace["segments"]):
        results = {"CANCELED"}
    return Comparison(trace["jobResult"], results.pop() if len(results) == 1 else sorted(results))


def _apart(calls: list[str], together: bool) -> list[list[str]]:
    """The calls with sorted names in commits and restores, as the order of former subtasks is arbitrary;
    without checkpoints, those of writer and committer separately."""
    plain = [
        re.sub(r"(commit|restoreWriter)\[(.*)\]", lambda m: f"{m[1]}[{','.join(sorted(m[2].split(',')))}]", c)
        for c in calls
    ]
    if together:
        return [plain]
    return [[c for c in plain if c.startswith("writer")], [c for c in plain if not c.startswith("writer")]]
