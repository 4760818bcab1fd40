"""Which staged files of a folder `unistream sinks clean` removes: never one that may still be committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.contract.given_metadata import ONE, job, job_id, snapshot
from tests.walked import walked
from unistream.base.config import METADATA_URL, Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.cli.sinks import app
from unistream.client.job.staged_files import OUTPUT, clean_folder
from unistream.connector.file import FileSink
from unistream.connector.file.sink_parts import PartFile
from unistream.connector.file.sink_stage import FileCommitRecord, FileStage
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.model.elements import Batch
from unistream.port.sink import SinkContext
from unistream.testing.harness.operators import CountingMetrics

HEX = 0x1234567890ABCDEF << 64  # ids differ within the characters that file names have


def stage(folder: Path, of: JobId, *, old: bool = False) -> Path:
    """A staged file of a job; `old`: as an earlier version has left it."""
    context = SinkContext(
        job=of,
        lineage=LineageId("lineage"),
        sink_uid=OperatorUid("to-files"),
        attempt=AttemptId(of, VertexId("v"), 0, 0),
        index=0,
        parallelism=1,
        restored=None,
        metrics=CountingMetrics(),
    )
    before = set(walked(folder, "*.staged"))
    writer = FileSink(str(folder)).create_writer()
    writer.open(context, ())
    writer.write(Batch(pa.record_batch({"n": [1]})))
    writer.flush(end_of_input=False)
    writer.prepare_commit(CheckpointId(1))
    [path] = set(walked(folder, "*.staged")) - before
    return path.rename(folder / f".{path.name.removesuffix('.staged')}") if old else path


@pytest.fixture
def config(tmp_path: Path) -> Configuration:
    url = f"sqlite:///{tmp_path / 'metadata.db'}"
    ensure(url)
    return Configuration({METADATA_URL.key: url})


def record(config: Configuration, number: int, *, snapshots: int = 0, **changes: Any) -> JobId:
    store = SqlMetadataStore(config.get(METADATA_URL))
    store.add_job(job(number, **{"job": job_id(HEX + (number << 64)), **changes}), ONE)
    for checkpoint in range(snapshots):
        store.record_checkpoint(job_id(HEX + (number << 64)), snapshot(checkpoint + 1), ONE)
    store.close()
    return job_id(HEX + (number << 64))


ENDED = {"job_type": "BATCH", "ended_ms": 5}


@pytest.mark.parametrize("old", [False, True], ids=["this version", "earlier version"])
@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        pytest.param({**ENDED, "state": "FAILED"}, "", id="a BATCH job that has failed"),
        pytest.param({**ENDED, "state": "CANCELED"}, "", id="a BATCH job that was cancelled"),
        pytest.param({**ENDED, "state": "FINISHED"}, "a snapshot may name them", id="one with a result"),
        pytest.param(
            {**ENDED, "state": "FAILED", "snapshots": 1},
            "a snapshot of the job may",
            id="one with a snapshot",
        ),
        pytest.param({"job_type": "BATCH", "state": "RUNNING"}, "has not ended", id="one that runs"),
        pytest.param(
            {"job_type": "BATCH", "state": "FAILING"}, "has not ended", id="one that is about to fail"
        ),
        pytest.param(
            {**ENDED, "job_type": "STREAMING", "state": "FAILED"}, "a snapshot may name", id="a stream"
        ),
        pytest.param(
            {"job_type": "STREAMING", "state": "CANCELED", "ended_ms": 5, "snapshots": 2},
            "a snapshot of the job may",
            id="a stream with snapshots",
        ),
    ],
)
def test_only_what_nobody_can_commit_is_removed(
    tmp_path: Path, config: Configuration, changes: dict[str, Any], kept: str, old: bool
) -> None:
    file = stage(tmp_path / "out", record(config, 1, **changes), old=old)
    [would] = clean_folder(config, str(tmp_path / "out"), dry_run=True)
    assert file.exists()
    [one] = clean_folder(config, str(tmp_path / "out"))
    assert (one, one.files) == (would, 1)
    assert bool(one.kept) == bool(kept) == file.exists()
    assert kept in one.kept


def test_each_job_of_a_folder_is_judged_by_itself(tmp_path: Path, config: Configuration) -> None:
    out = tmp_path / "out"
    failed = [stage(out, record(config, 1, **ENDED, state="FAILED")) for _ in range(1)]
    running = stage(out, record(config, 2, job_type="BATCH", state="RUNNING"))
    unknown = stage(out, job_id(HEX + (3 << 64)))
    committed = out / "part-mine.parquet"
    committed.write_bytes(b"")
    found = clean_folder(config, str(out))
    assert [bool(one.kept) for one in found] == [False, True, True]
    assert [file.exists() for file in [*failed, running, unknown, committed]] == [False, True, True, True]


def test_what_a_commit_has_decided_on_is_output(tmp_path: Path, config: Configuration) -> None:
    """The job was cut off between the record and the name of the file, and never came back."""
    out, failed = tmp_path / "out", record(config, 1, **ENDED, state="FAILED")
    files = [stage(out, failed) for _ in range(2)]
    names = [file.name.removesuffix(".staged") for file in files]
    decided = FileCommitRecord(checkpoint_id=1, files=(PartFile(bucket="", name=names[0], size=1, rows=1),))
    assert FileStage(str(out), {}).decide("lineage", "to-files", 1, decided)
    found = clean_folder(config, str(out), forgotten=[failed])
    assert [(one.files, one.kept) for one in found] == [(1, OUTPUT), (1, "")]
    assert [file.exists() for file in files] == [True, False]


def test_a_user_who_keeps_no_snapshot_says_so_by_job(tmp_path: Path, config: Configuration) -> None:
    stream = record(config, 1, state="FAILED", ended_ms=5, snapshots=3)
    running = record(config, 2, state="RUNNING")
    file, other = stage(tmp_path / "out", stream), stage(tmp_path / "out", running)
    with pytest.raises(ConfigError, match=f"job {running} has not ended"):
        clean_folder(config, str(tmp_path / "out"), forgotten=[running])
    assert file.exists(), "nothing is removed if one is refused"
    clean_folder(config, str(tmp_path / "out"), forgotten=[stream])
    assert (file.exists(), other.exists()) == (False, True)


def test_without_a_history_nothing_is_removed(tmp_path: Path) -> None:
    file = stage(tmp_path / "out", job_id(HEX))
    config = Configuration({METADATA_URL.key: f"sqlite:///{tmp_path / 'none.db'}"})
    [one] = clean_folder(config, str(tmp_path / "out"))
    assert (one.kept, file.exists()) == ("the history does not know the job", True)


def test_the_command_says_what_it_removes(tmp_path: Path, config: Configuration) -> None:
    of = record(config, 1, **ENDED, state="FAILED")
    stage(tmp_path / "out", of)
    define = ["-D", f"{METADATA_URL.key}={config.get(METADATA_URL)}", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, ["clean", "--dry-run", *define])
    assert "would be removed" in shown.output
    done = CliRunner().invoke(app, ["clean", "--json", *define])
    assert json.loads(done.output) == [{"job": of, "files": 1, "kept": ""}]
    assert "no staged files" in CliRunner().invoke(app, ["clean", *define]).output
