"""What every sink without a committer has to do: what was written before a checkpoint is with the target when
it is complete, and what comes again after a failure comes as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pytest

from tests.contract.sinks.case import batch, context
from unistream.base.ids import CheckpointId
from unistream.connector.print_ import PrintSink
from unistream.connector.simple import SimpleSink
from unistream.port.sink import Sink, SinkContext, SinkWriter


@dataclass
class Target:
    """A sink, and the ids that have reached its target, in order."""

    sink: Sink
    ids: Callable[[], list[int]]


class Lines(SimpleSink):
    """Of an author who keeps rows until they are flushed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, context: SinkContext) -> None:
        self.held: list[int] = []

    def write(self, rows: pa.RecordBatch) -> None:
        self.held += rows.column("id").to_pylist()

    def flush(self) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{id}\n" for id in self.held)
        self.held = []


class Hook(Lines):
    """Of an author who sends rows as they come."""

    def write(self, rows: pa.RecordBatch) -> None:
        super().write(rows)
        self.flush()


def _lines(kind: type[Lines]) -> Callable[[Path, pytest.CaptureFixture[str]], Target]:
    def make(folder: Path, _captured: pytest.CaptureFixture[str]) -> Target:
        path = folder / "lines"
        path.touch()
        return Target(kind(path), lambda: [int(line) for line in path.read_text().split()])

    return make


def _printed(_folder: Path, captured: pytest.CaptureFixture[str]) -> Target:
    seen: list[str] = []

    def ids() -> list[int]:
        seen.extend(captured.readouterr().out.splitlines())
        return [int(line.partition("id=")[2].partition(",")[0]) for line in seen]

    return Target(PrintSink(), ids)


RIGS = {"simple, kept": _lines(Lines), "simple, sent": _lines(Hook), "print": _printed}


@pytest.fixture(params=RIGS.values(), ids=RIGS)
def target(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Target:
    make: Callable[[Path, pytest.CaptureFixture[str]], Target] = request.param
    return make(tmp_path, capsys)


def opened(target: Target, *, attempt: int = 0, restored: int | None = None) -> SinkWriter:
    sink: Sink = cloudpickle.loads(cloudpickle.dumps(target.sink))
    writer = sink.create_writer()
    writer.open(context(attempt=attempt, restored=restored), [])
    return writer


def checkpoint(writer: SinkWriter, number: int) -> None:
    writer.flush(end_of_input=False)
    assert list(writer.prepare_commit(CheckpointId(number))) == []
    assert list(writer.snapshot_state(CheckpointId(number))) == []


def written(writer: SinkWriter, *parts: Sequence[int]) -> None:
    for ids in parts:
        writer.write(batch(*ids))


def test_it_commits_nothing(target: Target) -> None:
    target.sink.check(batch(1).records.schema)
    assert target.sink.create_committer() is None


def test_rows_are_there_when_the_checkpoint_is(target: Target) -> None:
    writer = opened(target)
    written(writer, [1, 2], [3])
    checkpoint(writer, 1)
    assert target.ids() == [1, 2, 3]
    writer.close()


def test_rows_are_there_at_the_end_of_the_input(target: Target) -> None:
    writer = opened(target)
    written(writer, [1])
    writer.flush(end_of_input=True)
    checkpoint(writer, 1)
    writer.close()
    assert target.ids() == [1]


@pytest.mark.parametrize("closed", [True, False], ids=["the task fails", "the process is killed"])
@pytest.mark.parametrize(
    ("lost", "then"),
    [
        pytest.param([], [4], id="right behind the checkpoint"),
        pytest.param([4], [4, 5], id="with rows behind it"),
        pytest.param([4, 5], [4, 5], id="with all rows behind it"),
    ],
)
def test_after_a_failure_none_is_missing(
    target: Target, lost: list[int], then: list[int], closed: bool
) -> None:
    first = opened(target)
    written(first, [1, 2, 3])
    checkpoint(first, 1)
    written(first, *([lost] if lost else []))
    if closed:
        first.close()
    second = opened(target, attempt=1, restored=1)
    written(second, then)
    checkpoint(second, 2)
    second.close()
    found = target.ids()
    assert set(found) == {1, 2, 3, *then}
    assert all(found.count(id) == 1 for id in (1, 2, 3)), "what the checkpoint covers does not come again"
    assert found[-len(then) :] == then


def test_copies_of_one_sink_do_not_share_rows(target: Target) -> None:
    writers = [opened(target), opened(target)]
    written(writers[0], [1])
    written(writers[1], [2])
    checkpoint(writers[0], 1)
    assert 1 in target.ids()
    checkpoint(writers[1], 1)
    assert sorted(target.ids()) == [1, 2]
    for writer in writers:
        writer.close()


def test_close_before_open_and_twice(target: Target) -> None:
    writer = target.sink.create_writer()
    writer.close()
    writer.close()
    assert target.ids() == []
