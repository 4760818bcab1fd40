"""What a cluster has to know before it submits a replay: its job is cut once, whatever was killed before."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from unistream.base import process_mark
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LineageId
from unistream.connector.file import FileSink
from unistream.dead_letters.clustered import prepared
from unistream.dead_letters.graph import append_everywhere
from unistream.dead_letters.ledger import FORMAT_OF_CLUSTERS, Ledger, ReplayOrder
from unistream.dead_letters.replay import Chosen, Replay
from unistream.dead_letters.table import letters_at
from unistream.model.chain import JobCode
from unistream.model.letter_replays import (
    Correction,
    NothingToReplay,
    ReplayAnswer,
    ReplayLimits,
    ReplayOpen,
    ReplayPrepared,
    ReplayQuestion,
    replay_request,
)
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.submission import SubmitRequest
from unistream.operator.common import encoded_row
from unistream.operator.sink import SinkWriterOperator
from unistream.port.dead_letters import LETTER_SCHEMA
from unistream.storage.fs import FsCheckpointStorage
from unistream.worker.code import load, open_pipeline, pack_pipeline, pack_with, sha256

FIRST, SECOND = "a" * 32, "b" * 32
HERE, OTHER = "cluster-1", "cluster-2"


def pipeline(folder: Path) -> us.Environment:
    env = us.Environment()
    texts = us.StaticSource(pa.table({"id": [1], "fare": ["free"]}))
    rows = env.from_source(texts, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    fares = rows.with_columns(fare=us.col("fare").cast("int64"), on_error="dead-letter").uid("fares")
    fares.sink_to(us.FileSink(str(folder / "out"))).uid("out")
    fares.dead_letters_to(us.FileSink(str(folder / "dead")))
    return env


def letter(number: int) -> dict[str, Any]:
    row = {"id": number, "fare": "free"}
    return {
        "letter": f"{number:032x}",
        "row": json.dumps(row),
        "row_ipc": encoded_row(pa.RecordBatch.from_pylist([row])),
        "error_type": "ArrowInvalid",
        "error": "no number",
        "operator_uid": "fares",
        "operator": "with_columns",
        "attempt": 1,
    }


@dataclass
class Table:
    """Of two letters, and a cluster that asks for replays of them."""

    folder: Path
    pipeline: bytes

    @property
    def ledger(self) -> Ledger:
        return Ledger(str(self.folder / "dead"))

    def ask(self, replay: str = FIRST, **more: Any) -> ReplayAnswer:
        asked = {"cluster": HERE, "mark": process_mark.own(), "pipeline": self.pipeline} | more
        return prepared(
            ReplayQuestion(id=replay, table=str(self.folder / "dead"), limits=ReplayLimits(), **asked)
        )

    def note(self, replay: str) -> None:
        """Its job has committed both letters."""
        folder = Path(self.ledger.replayed_folder)
        folder.mkdir(parents=True, exist_ok=True)
        ids = [f"{number:032x}" for number in (1, 2)]
        pq.write_table(pa.table({"letter": ids, "replay": [replay] * 2}), folder / "part-0.parquet")

    def unfinished(self) -> list[str]:
        return [order.id for order in self.ledger.unfinished()]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    (tmp_path / "dead").mkdir()
    letters = pa.Table.from_pylist([letter(1), letter(2)], LETTER_SCHEMA)
    pq.write_table(letters, tmp_path / "dead" / "part-0.parquet")
    return Table(tmp_path, pipeline(tmp_path).packed_pipeline("fares"))


def submission(answer: ReplayAnswer) -> SubmitRequest:
    assert isinstance(answer, ReplayPrepared), answer
    return msgspec.msgpack.decode(answer.submission, type=SubmitRequest)


def test_the_job_is_cut_and_has_begun_before_anybody_can_submit_it(table: Table) -> None:
    answer = table.ask()
    request = submission(answer)
    assert isinstance(answer, ReplayPrepared)
    assert (answer.replay, answer.letters, answer.unread, answer.goes_on) == (FIRST, 2, 0, False)
    assert request.request_id == replay_request(FIRST, HERE, 0)
    assert (request.alone, request.savepoint, request.pipeline) == (True, None, table.pipeline)
    uids = {str(info.uid) for vertex in request.graph.vertices for info in vertex.operators}
    assert {"fares", "out-replay", "fares-dead-letters-replay", "unistream-replayed"} <= uids
    assert "rows" not in uids, "the source of the pipeline is not read again"
    assert load(request.artifact, sha256(request.artifact)).chains
    (order,) = table.ledger.unfinished()
    assert (order.id, order.cluster, order.format) == (FIRST, HERE, FORMAT_OF_CLUSTERS)
    assert order.mark == process_mark.own()


@pytest.mark.parametrize(
    ("more", "letters"),
    [
        ({"letters": (f"{2:032x}",)}, 1),
        ({"operator": "fares"}, 2),
        ({"error_type": "KeyError"}, 0),
        ({"corrections": (Correction(letter=f"{1:032x}", row='{"id":1,"fare":"7"}'),)}, 1),
    ],
    ids=["by id", "by operator", "none has the error", "corrected ones"],
)
def test_some_letters_are_chosen(more: dict[str, Any], letters: int, table: Table) -> None:
    answer = table.ask(**more)
    assert (answer.letters if isinstance(answer, ReplayPrepared) else 0) == letters
    assert isinstance(answer, NothingToReplay) is (letters == 0)
    assert table.unfinished() == [FIRST] * bool(letters)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"corrections": (Correction(letter="x", row="{}"),)}, "there is no letter x, which is corrected"),
        ({"corrections": (Correction(letter="x"),)}, "is its row or the value of its record"),
        ({"corrections": (Correction(letter=f"{1:032x}", raw="1"),)}, 'is corrected by "row"'),
        ({"corrections": (Correction(letter="x", row="{}"),) * 2}, "letter x is corrected twice"),
        ({"pipeline": pack_pipeline({"no": "pipeline"})}, "is no pipeline"),
    ],
)
def test_what_cannot_be_replayed_begins_nothing(more: dict[str, Any], why: str, table: Table) -> None:
    with pytest.raises(ConfigError, match=why):
        table.ask(**more)
    assert table.unfinished() == []


def test_an_earlier_replay_is_for_who_knows_its_jobs(table: Table) -> None:
    table.ask()
    assert table.ask(SECOND) == ReplayOpen(replay=FIRST)
    assert table.unfinished() == [FIRST], "it may run"
    again = table.ask(SECOND, idle={FIRST: 0})  # killed before it was submitted, say
    assert submission(again).request_id == replay_request(SECOND, HERE, 0)
    assert table.unfinished() == [SECOND]
    once_more = submission(table.ask(SECOND, idle={SECOND: 0}))
    assert once_more.request_id == replay_request(SECOND, HERE, 0), "the same trigger, so the same job"


def test_a_job_that_has_failed_behind_a_checkpoint_goes_on_from_there(table: Table) -> None:
    table.ask()
    root = Path(table.ledger.checkpoints_folder(FIRST))
    directory = root / ("c" * 32) / "chk-3"
    directory.mkdir(parents=True)
    manifest = Manifest(
        job=JobId("c" * 32),
        job_name="replay of fares",
        lineage=LineageId("l"),
        checkpoint_id=CheckpointId(3),
        kind=SnapshotKind.CHECKPOINT,
        timestamp_ms=7,
        vertices=(),
    )
    FsCheckpointStorage(str(root)).write_manifest(str(directory), manifest)
    answer = table.ask(SECOND, idle={FIRST: 2})
    request = submission(answer)
    assert isinstance(answer, ReplayPrepared)
    assert (answer.replay, answer.goes_on) == (FIRST, True)
    assert request.savepoint is not None
    assert request.savepoint.removeprefix("file://") == str(directory)
    assert request.request_id == replay_request(FIRST, HERE, 2)


@pytest.mark.parametrize("known", [{"finished": (FIRST,)}, {"idle": {FIRST: 1}}], ids=["finished", "gone"])
def test_a_replay_that_had_ended_is_noted_and_its_letters_stay_replayed(
    known: dict[str, Any], table: Table
) -> None:
    table.ask()
    table.note(FIRST)
    assert table.ask(SECOND, **known) == NothingToReplay()
    assert table.unfinished() == []
    with pytest.raises(ConfigError, match="has ended; choose a new trigger id"):
        table.ask(FIRST)


def begun(table: Table, **more: Any) -> None:
    order = ReplayOrder(
        id=FIRST,
        operator="fares",
        pipeline="p:p",
        letters=2,
        host=socket.gethostname(),
        pid=1,
        begun_ms=1,
        **more,
    )
    table.ledger.begin(order, letters_at(str(table.folder / "dead")).rows.select(["letter"]))


def dead_mark() -> str:
    """Of a process that has ended."""
    code = "from unistream.base import process_mark; print(process_mark.own())"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "was begun by the command, on .* run the same command there"),
        ({"cluster": OTHER, "mark": process_mark.own()}, "was begun by cluster cluster-2"),
        ({"cluster": OTHER}, "was begun by cluster cluster-2"),
    ],
    ids=["the command", "a cluster that runs", "a cluster that may go on later"],
)
def test_replays_of_others_are_left_alone(more: dict[str, Any], why: str, table: Table) -> None:
    begun(table, **more)
    with pytest.raises(ConfigError, match=why):
        table.ask(SECOND)
    assert table.unfinished() == [FIRST]


def test_the_replay_of_a_cluster_that_is_gone_for_good_is_taken_over(table: Table) -> None:
    begun(table, cluster=OTHER, mark=dead_mark(), format=FORMAT_OF_CLUSTERS)
    assert table.ask(SECOND) == ReplayOpen(replay=FIRST)
    assert [order.cluster for order in table.ledger.unfinished()] == [HERE]


def test_the_command_leaves_the_replay_of_a_cluster_alone_until_all_its_letters_are_recorded(
    table: Table,
) -> None:
    table.ask()
    said: list[str] = []
    command = Replay(
        letters=letters_at(str(table.folder / "dead")),
        ledger=table.ledger,
        environment=pipeline(table.folder),
        pipeline="p:p",
        target="local",
        on_step=said.append,
    )
    with pytest.raises(ConfigError, match="was begun by the web UI of cluster cluster-1 and is not done"):
        command.run(Chosen())
    table.note(FIRST)
    assert command.run(Chosen()).replay is None
    assert said == [f"replay {FIRST} had ended"]


# --- what travels -----------------------------------------------------------------------------------


def test_pipelines_without_letters_send_nothing(tmp_path: Path) -> None:
    env = us.Environment()
    env.from_collection([{"n": 1}], name="n").sink_to(us.BlackholeSink())
    assert env.packed_pipeline() == b""


def test_sinks_append_wherever_they_are_referred_to(tmp_path: Path) -> None:
    graph = pipeline(tmp_path).stream_graph()
    sinks = [node.operator.sink for node in graph.nodes if isinstance(node.operator, SinkWriterOperator)]
    append_everywhere(graph)
    after = [node.operator.sink for node in graph.nodes if isinstance(node.operator, SinkWriterOperator)]
    assert [one._on_foreign for one in after if isinstance(one, FileSink)] == ["append", "append"]
    assert [one is other for one, other in zip(sinks, after, strict=True)] == [True, True]


def test_the_modules_of_a_pipeline_travel_on(tmp_path: Path) -> None:
    """A process opens it that has never seen them, and packs what was cut from it."""
    (tmp_path / "fares_of_ada.py").write_text("def fare(row):\n    return row\n")
    made = (
        "import pathlib, fares_of_ada; from unistream.worker.code import pack_pipeline;"
        "pathlib.Path('packed').write_bytes(pack_pipeline([fares_of_ada.fare]))"
    )
    root = str(Path(__file__).parents[3])
    environment = {"PYTHONPATH": f"{root}{os.pathsep}{tmp_path}"}
    subprocess.run([sys.executable, "-c", made], cwd=tmp_path, env=environment, check=True)
    found, modules = open_pipeline((tmp_path / "packed").read_bytes())
    assert b"fares_of_ada" in modules
    assert isinstance(found, list)
    assert found[0]({"n": 1}) == {"n": 1}
    content = pack_with(JobCode(), modules)
    assert load(content, sha256(content)) == JobCode()
    assert modules in content
