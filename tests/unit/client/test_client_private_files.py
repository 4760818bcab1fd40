"""What a cluster stores is its user's alone, whatever options and umask say; tables are as the umask says."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import eventually
from tests.walked import walked
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.connector.datagen import DatagenSource, EventTime, Sequential
from unistream.model.submission import SubmitRequest
from unistream.testing.mini_cluster import DEFAULTS, ThreadHost
from unistream.worker.code import pack

CANARY = "CANARY-of-a-password"
TIMES = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture
def generous() -> Iterator[None]:
    """A umask that lets everybody read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def request(folder: Path) -> SubmitRequest:
    """A job whose code holds a secret, with large state and a table."""
    env = us.Environment({"execution.checkpointing.interval": "50 ms"})
    source = DatagenSource(
        {"n": Sequential(), "at": EventTime(start_ms=0, step_ms=1)},
        rows=None,
        bounded=False,
        rows_per_second=1_000,
    )

    def padded(batch: pa.RecordBatch) -> pa.RecordBatch:
        text = pa.array([CANARY * 100] * batch.num_rows)
        return pa.RecordBatch.from_arrays([batch["n"], text], names=["n", "text"])

    stream = env.from_source(source, TIMES, "numbers").uid("numbers")
    schema = {"n": pa.int64(), "text": pa.string()}
    rows = stream.map_batches(padded, returns=schema).uid("padded")
    windows = rows.key_by("n").window(us.TumblingEventTimeWindows.of("1 h")).aggregate(text=us.max("text"))
    windows.uid("state").sink_to(us.BlackholeSink()).uid("nowhere")
    rows.sink_to(us.DeltaSink(str(folder / "table"))).uid("out")
    graph, code = env.job_graph("private")
    return SubmitRequest(graph=graph, artifact=pack(code), config=env.config.to_dict())


def open_to_others(root: Path) -> list[str]:
    """Paths in it that others may use, with their modes."""
    found = []
    for path in walked(root):
        with suppress(FileNotFoundError):  # it was removed meanwhile, as old checkpoints are
            mode = path.lstat().st_mode
            if mode & 0o077:
                found.append(f"{stat.S_IMODE(mode):o} {path.relative_to(root)}")
    return found


@pytest.mark.usefixtures("generous")
def test_others_read_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, data = tmp_path / "kept", tmp_path / "data"
    for folder in (kept, data):
        folder.mkdir()
    monkeypatch.setenv("UNISTREAM_HOME", str(kept / "home"))
    config = Configuration(
        {
            **DEFAULTS,
            "high-availability.storageDir": (kept / "shared").as_uri(),
            "state.backend.type": "rocksdb",
            "metadata.url": f"sqlite:///{kept / 'metadata.db'}",
        }
    )
    with EmbeddedCluster("mini", config, workdir=kept / "work", create_host=ThreadHost) as cluster:
        client = cluster.submit(request(data))
        eventually(lambda: client.status().checkpoints_completed > 1, "checkpoints are complete")
        client.savepoint(str(kept / "saved" / "here"))
        seen = {path.relative_to(kept).parts[0] for path in walked(kept) if path.is_file()}
        assert {"shared", "work", "saved", "home", "metadata.db"} <= seen
        assert any(CANARY in path.read_text(errors="replace") for path in walked(kept / "saved", "*.*"))
        assert open_to_others(kept) == []
        assert nobody_finds(tmp_path) == []
        client.stop(target=str(kept / "saved"))
    assert open_to_others(kept) == []
    table = {stat.S_IMODE(path.stat().st_mode) for path in walked(data / "table", "*.parquet")}
    assert table == {0o666}, "a table is the user's"


def nobody_finds(folder: Path) -> list[str]:
    """Files with the secret that another user reads; the table is not one of them."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    for parent in (folder, *folder.parents[:-2]):
        parent.chmod(0o755)  # pytest's own are closed, too
    words = ["grep", "-rlaF", CANARY, str(folder / "kept")]
    found = subprocess.run([*NOBODY, *words], capture_output=True, text=True, timeout=60, check=False)
    return found.stdout.splitlines()


@pytest.mark.usefixtures("generous")
def test_the_folder_of_a_version_that_left_it_open_is_closed(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "default" / "artifacts").mkdir(parents=True)
    config = Configuration({**DEFAULTS, "high-availability.storageDir": shared.as_uri()})
    with EmbeddedCluster("mini", config, workdir=tmp_path / "work", create_host=ThreadHost, rest=False):
        assert stat.S_IMODE((shared / "default").stat().st_mode) == 0o700
        assert stat.S_IMODE(shared.stat().st_mode) == 0o777, "that one is the user's"
