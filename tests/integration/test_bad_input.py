"""What users get wrong, by the command line: one clear sentence, exit code not 0, nothing left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.eventually import WAIT_S
from tests.support.servers.kafka_tools import produce_values
from unistream.testing.devtools.kafka_tools import create_topic

PIPELINES = Path(__file__).parent / "pipelines"
BAD_INPUT, JOB_FAILED, UNREACHABLE = 2, 1, 3


@dataclass(frozen=True)
class Outcome:
    code: int
    stderr: str
    lake: Path


def run(tmp_path: Path, function: str, *arguments: str, **environment: str) -> Outcome:
    """`unistream run` in a process of its own; no process of it may be left when it has ended."""
    mark = uuid.uuid4().hex
    lake = tmp_path / "lake"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "unistream.cli", "run", f"bad_pipelines:{function}", "-t", "local"),
            *("-D", f"execution.checkpointing.dir={(tmp_path / 'checkpoints').as_uri()}"),
            *arguments,
        ],
        cwd=PIPELINES,
        check=False,
        env={
            **os.environ,
            "LAKE": str(lake),
            "UNISTREAM_HOME": str(tmp_path / "home"),
            "TEST_MARK": mark,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert [p.info for p in psutil.process_iter(["pid", "cmdline"]) if is_marked(p, mark)] == []
    return Outcome(done.returncode, done.stderr, lake)


def is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("TEST_MARK") == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def check(outcome: Outcome, code: int, *texts: str) -> None:
    for text in texts:
        assert text in outcome.stderr
    assert outcome.code == code, outcome.stderr
    frames = [line for line in outcome.stderr.splitlines() if line.startswith("  File ")]
    assert bool(frames) is ("ZeroDivisionError" in texts), "of the user's own function alone"
    assert all("bad_pipelines.py" in frame for frame in frames), outcome.stderr
    assert not (outcome.lake / "_delta_log").exists(), "a table was made"


@pytest.mark.parametrize(
    ("function", "arguments", "code", "texts"),
    [
        pytest.param("no_timestamp_column", (), BAD_INPUT, ["'at'", "id"], id="no timestamp column"),
        pytest.param("duplicate_uid", (), BAD_INPUT, ["'numbers'", "uid"], id="duplicate uid"),
        pytest.param("parallelism_above_max", (), BAD_INPUT, ["5", "4"], id="parallelism above the maximum"),
        pytest.param("good", ("-p", "5000"), BAD_INPUT, ["5000"], id="parallelism above the limit"),
        pytest.param(
            "good",
            ("-D", "execution.checkpointing.intervall=2 s"),
            BAD_INPUT,
            ["'execution.checkpointing.intervall'", "'execution.checkpointing.interval'"],
            id="unknown configuration key",
        ),
        pytest.param(
            "good",
            ("-D", "execution.checkpointing.interval=often"),
            BAD_INPUT,
            ["execution.checkpointing.interval", "'often'"],
            id="value that is no duration",
        ),
        pytest.param("missing", (), BAD_INPUT, ["'missing'"], id="no such function"),
        pytest.param(
            "user_function_raises",
            (),
            JOB_FAILED,
            ["'invert'", "subtask 0", "row 42", "ZeroDivisionError"],
            id="user function raises: operator, subtask and row are named",
        ),
    ],
)
def test_a_mistake_is_named(
    tmp_path: Path, function: str, arguments: tuple[str, ...], code: int, texts: list[str]
) -> None:
    check(run(tmp_path, function, *arguments), code, *texts)


def test_a_savepoint_that_does_not_exist(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    check(run(tmp_path, "good", "-s", str(missing)), BAD_INPUT, str(missing))


def test_a_truncated_savepoint(tmp_path: Path) -> None:
    savepoint = tmp_path / "savepoint-1"
    savepoint.mkdir()
    (savepoint / "_metadata").write_bytes(b'{"sha256": "00", "manifest": {"format": 1, ')
    check(run(tmp_path, "good", "-s", str(savepoint)), BAD_INPUT, str(savepoint))


def test_a_table_whose_schema_does_not_fit_is_left_as_it_was(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_deltalake(str(lake), pa.table({"id": pa.array([1, 2], pa.int64())}))
    outcome = run(tmp_path, "schema_does_not_fit")
    assert outcome.code == BAD_INPUT, outcome.stderr
    for text in ("'id'", "string", "int64", str(lake)):
        assert text in outcome.stderr
    assert DeltaTable(str(lake)).version() == 0
    assert len(list(lake.glob("*.parquet"))) == 1


def test_kafka_that_cannot_be_reached(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening: refused at once
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        outcome = run(tmp_path, "kafka", BOOTSTRAP=address, TOPIC="orders")
    check(outcome, JOB_FAILED, address)


def test_a_topic_that_does_not_exist(tmp_path: Path, kafka: str) -> None:
    check(run(tmp_path, "kafka", BOOTSTRAP=kafka, TOPIC="no-such-topic"), JOB_FAILED, "no-such-topic")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        pytest.param(b"not json", "JSON", id="a record that is not JSON"),
        pytest.param(b'{"id": "seven", "at": 1}', "id", id="a field of the wrong type"),
    ],
)
def test_a_bad_record_is_named_by_its_place(tmp_path: Path, kafka: str, record: bytes, reason: str) -> None:
    topic = f"bad-{uuid.uuid4().hex[:8]}"
    create_topic(kafka, topic, 1)
    produce_values(kafka, topic, [b'{"id": 1, "at": 1}', b'{"id": 2, "at": 2}', record])
    outcome = run(tmp_path, "kafka", BOOTSTRAP=kafka, TOPIC=topic)
    check(outcome, JOB_FAILED, topic, "partition 0", "offset 2", reason)
