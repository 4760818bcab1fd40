"""A BATCH job whose master is killed while its output is committed: the next master commits the rest of it,
and runs nothing again."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.crash_runs import Command, Crashes, commands_in, in_the_gate
from tests.integration.test_recovered_jobs import COMMITTING, Restarted
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

ROWS, SPLITS = 400, 4
CONFIG = {"execution.runtime-mode": "BATCH", "parallelism.default": "2"}
POINTS = (*COMMITTING, "commit.recorded", "result.before_record")
ROWS_OF_MATRIX = [
    ("local", ("committables.pointed", "commit.recorded")),
    ("spark", ("commit.recorded",)),
    *((target, (point,)) for target in ("local", "spark") for point in POINTS),
]


class Files(us.TwoPhaseCommitSink[str]):
    """One file for each transaction; each writer has its own committer."""

    name = "files"

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def begin_transaction(self) -> str:
        return uuid.uuid4().hex

    def invoke(self, transaction: str, batch: us.Batch) -> None:
        with (Path(self._folder) / f"{transaction}.open").open("a") as file:
            file.writelines(f"{number}\n" for number in batch.records["id"].to_pylist())

    def commit(self, transaction: str) -> None:
        staged = Path(self._folder) / f"{transaction}.open"
        if staged.exists():
            staged.rename(staged.with_suffix(".committed"))

    def abort(self, transaction: str) -> None:
        (Path(self._folder) / f"{transaction}.open").unlink(missing_ok=True)


def request(folder: Path) -> SubmitRequest:
    """Each batch that is read leaves a file, and each row is in two sinks."""
    seen, files = folder / "seen", folder / "files"
    seen.mkdir()
    files.mkdir()

    def note(batch: pa.RecordBatch) -> pa.RecordBatch:
        (seen / uuid.uuid4().hex).touch()
        return batch

    env = us.Environment(CONFIG)
    rows = us.StaticSource(pa.table({"id": pa.array(range(ROWS), pa.int64())}), splits=SPLITS)
    read = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    noted = read.map_batches(note).uid("note")
    noted.sink_to(Files(str(files))).uid("files")
    noted.sink_to(us.DeltaSink(str(folder / "table"))).uid("table")
    graph, code = env.job_graph("bounded")
    return SubmitRequest(graph=graph, artifact=pack(code), config=CONFIG, request_id="once")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    with commands_in(tmp_path) as start:
        yield start


@pytest.mark.parametrize(("target", "points"), in_the_gate(ROWS_OF_MATRIX, 0))
def test_what_a_master_has_begun_to_commit_is_committed_by_the_next(
    tmp_path: Path,
    start: Callable[..., Command],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    points: tuple[str, ...],
) -> None:
    crashes = Crashes(tmp_path, monkeypatch)
    cluster = Restarted(tmp_path, start, crashes.environment(*points), target)
    wanted = request(tmp_path)
    job = cluster.asked(lambda client: client.submit(wanted).job_id)
    ended = cluster.end(job)
    eventually(lambda: crashes.all_happened, "all kills have come", WAIT_S)
    if cluster.deaths < len(points):
        cluster.again()  # it died, or is about to, behind the result
    assert ended.state == "FINISHED", ended.failure
    assert cluster.deaths == len(points)
    written = [path.read_text().split() for path in (tmp_path / "files").glob("*.committed")]
    assert sorted(int(number) for numbers in written for number in numbers) == list(range(ROWS))
    table = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(table["id"].to_pylist()) == list(range(ROWS))
    read_once = len(list((tmp_path / "seen").iterdir())) == SPLITS
    assert read_once == ("committables.stored" not in points), "what it commits counts, or it begins again"
    assert {
        (subtask.state, subtask.vertex) for subtask in ended.subtasks if subtask.state != "FINISHED"
    } == set()
    assert cluster.life.end(signal.SIGTERM) == 0
    cluster.life.assert_nothing_is_left()
    assert list((tmp_path / "work" / "artifacts").iterdir()) == []
