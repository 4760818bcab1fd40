"""Two-phase commit: recorded traces of writer and committer, and scripts of a transactional sink."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Final

from tests.support.conformance import sink_traces
from tests.support.conformance.case import Comparison, Json, Shape, SkipCase, entry
from unistream.api.two_phase import TransactionTimeout, TwoPhaseCommitSink
from unistream.base.errors import ProtocolError
from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch
from unistream.model.snapshot import OperatorState
from unistream.testing.harness import restore_state


@dataclass
class _Store:
    """The other system: rows by transaction, and which of these are open or committed."""

    rows: dict[int, list[str]] = field(default_factory=dict)
    open: list[int] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    commits_fail: bool = False
    now_ms: int = 0


class _StoreSink(TwoPhaseCommitSink[int]):
    name = "store"

    def __init__(self, store: _Store) -> None:
        self.store = store

    def now_ms(self) -> int:
        return self.store.now_ms

    def begin_transaction(self) -> int:
        number = len(self.store.rows)
        self.store.rows[number] = []
        self.store.open.append(number)
        return number

    def invoke(self, transaction: int, batch: Batch) -> None:
        self.store.rows[transaction] += batch.records.column("value").to_pylist()

    def commit(self, transaction: int) -> None:
        if self.store.commits_fail:
            raise RuntimeError("the store refuses")
        if transaction in self.store.open:
            self.store.open.remove(transaction)
            self.store.committed += self.store.rows[transaction]

    def abort(self, transaction: int) -> None:
        if transaction in self.store.open:
            self.store.open.remove(transaction)
            self.store.aborted += self.store.rows[transaction]


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.ages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        found = re.search(r"open for \d+ ms, timeout \d+ ms", record.getMessage())
        if found and "transaction_old" in record.getMessage():
            self.ages.append(found[0])


class _Script:
    """Plays the steps of one script on the operators of a transactional sink."""

    def __init__(self) -> None:
        self.store = _Store()
        self.sink = _StoreSink(self.store)
        self.snapshot: tuple[int, sink_traces.Snapshots] | None = None
        self._operators: sink_traces.SinkOperators | None = None

    @property
    def operators(self) -> sink_traces.SinkOperators:
        assert self._operators is not None, "the script opens it first"
        return self._operators

    def step(self, text: str) -> None:
        """One step; ``-> error`` and ``-> ok`` behind it say what must come of it."""
        words, _, wanted = text.partition("->")
        fails = wanted.strip().startswith("error")
        try:
            self._do(words.strip())
        except (RuntimeError, ProtocolError):
            if not fails:
                raise
        else:
            assert not fails, f"{text}: no error"

    def _do(self, words: str) -> None:
        match words.split():
            case ["open"] | ["open", "at", _]:
                self.store.now_ms = int(words.rpartition(" ")[2]) if "at" in words else self.store.now_ms
                self._open(restore=False)
            case ["write", value]:
                self.operators.writer.process({"value": [value]})
            case ["snapshot", number]:
                self.snapshot = int(number), self.operators.snapshot(CheckpointId(int(number)))
            case ["complete" | "notify", number]:
                self.operators.committer.complete(int(number))
            case ["finish" | "endInput"]:
                self.operators.end_writer()
            case ["close"]:
                self.operators.close()
            case ["restore", *_]:
                self._open(restore=True)
            case _:
                self._set(words)

    def _set(self, words: str) -> None:
        if words == "commit now throws":
            self.store.commits_fail = True
            return
        if clock := re.fullmatch(r"clock (\d+)", words):
            self.store.now_ms = int(clock[1])
            return
        if aborted := re.fullmatch(r"abort(?:ed)? (\d+)", words):
            self.operators.committer.operator.notify_checkpoint_aborted(CheckpointId(int(aborted[1])))
            return
        timeout = re.search(r"timeout (\d+) ms", words)
        if timeout is None:
            raise SkipCase(f"a step in words that a machine cannot play: {words}")
        ratio = re.search(r"ratio ([\d.]+)", words)
        self.sink.transaction_timeout = TransactionTimeout(
            timeout_ms=int(timeout[1]),
            warning_ratio=float(ratio[1]) if ratio else None,
            ignore_failures="ignore" in words,
        )

    def _open(self, *, restore: bool) -> None:
        states: tuple[OperatorState | None, OperatorState | None] = (None, None)
        if restore:
            assert self.snapshot is not None, "a restore without a snapshot"
            number, (writer, committer) = self.snapshot
            states = restore_state([writer], number), restore_state([committer], number)
        self._operators = sink_traces.SinkOperators(self.sink, states)


def _play_script(case: Json) -> Comparison:
    script, warnings = _Script(), _Warnings()
    log = logging.getLogger("unistream.api.two_phase")
    log.addHandler(warnings)
    try:
        for text in case["steps"]:
            script.step(text)
    finally:
        log.removeHandler(warnings)
    known: Json = {
        "committed": sorted(script.store.committed),
        "aborted": sorted(script.store.aborted),
        "openTransactions": len(script.store.open),
        "warning": warnings.ages[-1] if warnings.ages else None,
    }
    if unknown := set(case["expected"]) - set(known):
        raise SkipCase(f"expected in words: {', '.join(sorted(unknown))}")
    return Comparison(case["expected"], {key: known[key] for key in case["expected"]})


SHAPES: Final[tuple[Shape, ...]] = (
    Shape("observedTraces", frozenset({"scenario", "jobResult", "segments.perSubtask"}), sink_traces.read),
    entry("twoPhaseCommitSinkFunction", "steps", "expected", play=_play_script),
)
