"""Whole jobs that have everything on S3: checkpoints, savepoints, code, files and a table; kills at named
places, a store that fails, savepoints that are moved."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.contract.sinks.case import batch, context, permit, request
from tests.eventually import eventually
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import (
    OF_OBJECT_STORE,
    RECOVERING,
    WAIT_S,
    Crashes,
    in_the_gate,
    points_in_code,
    submit,
)
from tests.integration.several_masters import OF_HA_MATRIX, await_job, masters_in
from tests.modes import STREAMING
from tests.s3_proxy import FaultKind, S3Proxy
from tests.walked import walked
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot, Unreachable
from unistream.base.ids import CheckpointId
from unistream.base.object_stores import delta_options, file_system, use_store
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.connector.file import committer_of
from unistream.model.submission import SubmitRequest
from unistream.port.sink import CommitOutcome
from unistream.testing.devtools.object_store import make_bucket, options_of
from unistream.worker.code import pack

QUIET_S = 5.0  # after a leader of before has woken up
OFTEN = {"execution.checkpointing.interval": "400 ms", **RECOVERING}


class Place:
    """A folder of its own on the store.

    Attributes:
        url: Of the folder.
        config: With which a job has its checkpoints there.
        address: Of the server.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.url = f"s3://unistream/jobs/{uuid4().hex[:12]}"
        self.config = {
            **STREAMING,
            "parallelism.default": "2",
            **options_of(address),
            "execution.checkpointing.dir": f"{self.url}/checkpoints",
        }
        system: Any = file_system(self.url)[0]
        self.system = system

    @property
    def files(self) -> list[int]:
        """Ids of the rows of the file sink, as readers see them."""
        paths = [path for path in self.system.find(f"{self.url}/files") if path.endswith(".parquet")]
        return sorted(id for path in paths for id in self._ids(path))

    def _ids(self, path: str) -> list[int]:
        with self.system.open(path, "rb") as file:
            ids: list[int] = pq.read_table(file, columns=["id"])["id"].to_pylist()
        return ids

    @property
    def table(self) -> list[int]:
        """Ids of the rows of the Delta table."""
        url = f"{self.url}/table"
        rows = DeltaTable(url, storage_options=delta_options(url, {})).to_pyarrow_table()
        return sorted(rows.column("id").to_pylist())

    @property
    def uploads(self) -> list[str]:
        """Paths of the uploads that are neither completed nor aborted."""
        return [one.path for one in self.system.uploads(self.url.removeprefix("s3://"))]

    def pipeline(self, env: us.Environment, *, rows_per_second: int | None = 16_000) -> None:
        rows = rows_of(env, rows_per_second)
        rows.sink_to(us.FileSink(f"{self.url}/files")).uid("files")
        rows.sink_to(us.DeltaSink(f"{self.url}/table")).uid("table")


@pytest.fixture
def place(s3: str) -> Place:
    make_bucket(s3, "unistream")
    return Place(s3)


KILLS = {
    "between the parts of a file": ("upload.part_stored:2",),
    "with its files staged": ("file.staged:2",),
    "with all checked, before the record": ("file.before_record:2",),
    "behind the record, before an upload is completed": ("file.recorded:2",),
    "with one upload completed": ("file.first_renamed:2",),
    "with all completed, before the mark": ("upload.all_completed:2",),
    "after the state was written, before it was acknowledged": ("snapshot.uploaded:6",),
    "between checkpoint and commit": ("committer.before_commit:2",),
    "before the table's commit": ("delta.before_append:2",),
    "behind the table's commit": ("delta.appended:2",),
}


def test_every_named_place_of_the_store_has_a_row_here() -> None:
    killed = {point.partition(":")[0] for points in KILLS.values() for point in points}
    assert {p for p in killed if p.startswith(OF_OBJECT_STORE)} == set(points_in_code(OF_OBJECT_STORE))


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 4))
def test_a_job_that_is_killed_loses_and_doubles_nothing(crashes: Crashes, place: Place, what: str) -> None:
    """Meanwhile some requests fail, of which some are carried out all the same."""
    crashes.arm(*KILLS[what])
    with S3Proxy(place.address) as proxy:
        faults = [
            proxy.fault(kind, method=method, skip=skip, times=2)
            for kind in (FaultKind.SLOW_DOWN, FaultKind.LOST, FaultKind.RESET, FaultKind.HALF)
            for method, skip in (("PUT", 6), ("POST", 3), ("GET", 9))
        ]
        env = us.Environment(
            {**place.config, **OFTEN, "s3.endpoint": f"http://{proxy.address}"}, target="local"
        )
        place.pipeline(env)
        result = env.execute("on S3")
        make_bucket(place.address, "unistream")  # the store of this process is the server again
        assert sum(fault.hits for fault in faults) >= 12, "requests have failed"
    assert result.state == "FINISHED"
    crashes.assert_happened()
    assert result.restarts >= 1
    assert place.files == place.table == list(range(ROWS))
    assert place.uploads == [], "what the dead one had uploaded was aborted"
    left = place.system.find(f"{place.url}/checkpoints")
    assert [path for path in left if path.endswith(("_metadata", ".arrow"))] == []


def manifests(place: Place, folder: str) -> list[str]:
    return [path for path in place.system.find(f"{place.url}/{folder}") if path.endswith("/_metadata")]


def copied(place: Place, source: str, target: str) -> str:
    """A directory between disk and store, or from one disk to another; file by file, as people do."""
    system = place.system
    if target.startswith("s3://"):
        for path in walked(Path(source.removeprefix("file://"))):
            if path.is_file():
                below = path.relative_to(source.removeprefix("file://"))
                system.pipe_file(f"{target}/{below}", path.read_bytes())
        return target
    for path in system.find(source):
        below = path.removeprefix(source.removeprefix("s3://")).strip("/")
        (Path(target) / below).parent.mkdir(parents=True, exist_ok=True)
        (Path(target) / below).write_bytes(system.cat_file(path))
    return target


def counting(place: Place, folder: str, rate: int | None) -> Callable[[us.Environment], None]:
    """Counts of keys, which are state, into a table on the store."""

    def build(env: us.Environment) -> None:
        rows = rows_of(env, rate)
        counts = rows.key_by("key").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(n=us.count())
        counts.uid("window").sink_to(us.DeltaSink(f"{place.url}/{folder}")).uid("counts")

    return build


def env_counting(place: Place) -> us.Environment:
    env = us.Environment(place.config)
    counting(place, "counts", None)(env)
    return env


def counts_of(place: Place, folder: str) -> list[tuple[Any, ...]]:
    url = f"{place.url}/{folder}"
    table = DeltaTable(url, storage_options=delta_options(url, {})).to_pyarrow_table()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_a_savepoint_moves_from_the_disk_to_the_store_and_back(tmp_path: Path, place: Place) -> None:
    """Stopped twice: with a savepoint on disk, which is copied to the store; there with one on the store,
    which is copied to the disk. Each run has another parallelism. Commands read it meanwhile."""
    with EmbeddedCluster(
        "local", Configuration(place.config), workdir=tmp_path / "cluster", rest=False
    ) as cluster:

        def run(savepoint: str | None, target: str | None, parallelism: int) -> str:
            env = us.Environment({**place.config, "parallelism.default": str(parallelism)})
            counting(place, "counts", 500 if target else None)(env)
            job = submit(cluster, env, OFTEN, savepoint)
            if target is None:
                assert job.wait(WAIT_S).state == "FINISHED"
                return ""
            job.wait_for(lambda info: info.checkpoints_completed >= 1, WAIT_S)
            savepoint = job.stop(target=target)
            assert job.wait(WAIT_S).state == "FINISHED"
            return savepoint

        first = run(None, str(tmp_path / "savepoints"), 2)
        assert first.startswith("file://")
        second = run(copied(place, first, f"{place.url}/moved"), f"{place.url}/savepoints", 3)
        assert second.startswith(f"{place.url}/savepoints/savepoint-")
        elsewhere = {**place.config, "s3.endpoint": "http://127.0.0.1:1"}
        with pytest.raises(
            ConfigError, match=r"s3.endpoint is http://127.0.0.1:1 for the job and http.*one store"
        ):
            submit(cluster, env_counting(place), elsewhere)
        assert_commands_read(place, tmp_path, second)
        run(copied(place, second, str(tmp_path / "back")), None, 1)
        env = us.Environment(place.config)
        counting(place, "truth", None)(env)
        assert submit(cluster, env, {}).wait(WAIT_S).state == "FINISHED"
    assert counts_of(place, "counts") == counts_of(place, "truth")


def assert_commands_read(place: Place, folder: Path, savepoint: str) -> None:
    """They take the store from `-D`, or from the variables of Amazon's libraries; none shows the secret."""
    secret = place.config["s3.secret-key"]
    words = ["savepoint", "inspect", savepoint, "--json"]
    variables = {
        "AWS_ENDPOINT_URL": place.config["s3.endpoint"],
        "AWS_ACCESS_KEY_ID": place.config["s3.access-key"],
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    done = command(folder, words, variables)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["path"] == savepoint
    defines = [word for key in options_of("") for word in ("-D", f"{key}={place.config[key]}")]
    done = command(folder, [*words, *defines], {})
    assert done.returncode == 0, done.stderr
    logs = [path for path in walked(folder / "cluster" / "logs") if path.is_file()]
    assert logs
    shown = b"".join(path.read_bytes() for path in logs)
    stored = b"".join(place.system.cat(place.system.find(savepoint)).values())
    assert secret.encode() not in shown + stored + done.stdout.encode() + done.stderr.encode()


def command(folder: Path, words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unistream.cli.main", *words],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "UNISTREAM_HOME": str(folder), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )


# --- the file sink, whose commit is cut off -----------------------------------------------------------


class Cut:
    """A file sink behind a proxy: one file is staged, and its record is written, before `fault` hits."""

    def __init__(self, place: Place, fault: FaultKind | None) -> None:
        make_bucket(place.address, "unistream")
        self.sink = us.FileSink(f"{place.url}/files")
        writer = self.sink.create_writer()
        writer.open(context(), ())
        writer.write(batch(1, 2, 3))
        writer.flush(end_of_input=False)
        self.committables = list(writer.prepare_commit(CheckpointId(1)))
        with S3Proxy(place.address) as proxy:
            patient = {"s3.connection.timeout": "1 s", "s3.attempts.maximum": "2"}
            use_store(Configuration({**options_of(proxy.address), **patient}))
            committer = self.sink.create_committer()
            assert committer is not None
            committer.open(context())
            if fault is not None:
                proxy.fault(fault, method="POST", path="uploadId=", times=100)
            self.error: Exception | None = None
            try:
                committer.commit(permit(1), request(1, *self.committables))
            except Unreachable as error:
                self.error = error
        make_bucket(place.address, "unistream")

    def again(self, *, by_command: bool = False) -> CommitOutcome:
        """The committer of the restored job, or that of `unistream savepoint finalize`."""
        committer = committer_of(self.committables) if by_command else self.sink.create_committer()
        assert committer is not None
        committer.open(context(restored=1))
        return committer.commit(permit(1), request(1, *self.committables)).outcome


@pytest.mark.parametrize("fault", [FaultKind.LOST, FaultKind.SLOW_DOWN])
def test_a_commit_whose_completion_is_cut_off_is_finished_by_the_next_one(
    place: Place, fault: FaultKind
) -> None:
    cut = Cut(place, fault)
    assert cut.error is None or place.files in ([], [1, 2, 3])
    assert cut.again(by_command=fault is FaultKind.SLOW_DOWN) is CommitOutcome.ALREADY_COMMITTED
    assert (place.files, place.uploads) == ([1, 2, 3], [])


def test_a_file_that_a_reader_has_taken_does_not_come_back(place: Place) -> None:
    cut = Cut(place, None)
    assert place.files == [1, 2, 3]
    for path in place.system.find(f"{place.url}/files"):
        if path.endswith(".parquet"):
            place.system.rm_file(path)
    assert cut.again() is CommitOutcome.ALREADY_COMMITTED
    assert place.files == []


def test_an_upload_that_was_aborted_behind_its_record_is_lost_loudly(place: Place) -> None:
    """As by a rule of the bucket, while the job was down. With a mark of the user's it goes on."""
    cut = Cut(place, FaultKind.SLOW_DOWN)
    assert cut.error is not None
    for upload in list(place.system.uploads(place.url.removeprefix("s3://"))):
        place.system.abort_upload(upload)
    with pytest.raises(ConfigError, match=r"3 rows in all.*create the empty object (s3://\S+)") as lost:
        cut.again()
    mark = re.search(r"create the empty object (s3://\S+)", str(lost.value))
    assert mark is not None
    place.system.pipe_file(mark[1], b"")
    assert cut.again() is CommitOutcome.ALREADY_COMMITTED
    assert place.files == []


def test_an_upload_that_was_aborted_before_its_record_is_named_with_the_rule_that_may_have_done_it(
    place: Place,
) -> None:
    sink = us.FileSink(f"{place.url}/files")
    writer, committer = sink.create_writer(), sink.create_committer()
    assert committer is not None
    writer.open(context(), ())
    writer.write(batch(1))
    writer.flush(end_of_input=False)
    [committable] = writer.prepare_commit(CheckpointId(1))
    committer.open(context())
    for upload in list(place.system.uploads(place.url.removeprefix("s3://"))):
        place.system.abort_upload(upload)
    with pytest.raises(CorruptSnapshot, match="missing; its upload was aborted, perhaps by a rule"):
        committer.commit(permit(1), request(1, committable))
    assert place.files == []


# --- several masters ----------------------------------------------------------------------------------


@OF_HA_MATRIX
def test_a_deposed_master_writes_nothing_more_on_the_store(
    tmp_path: Path, zookeeper: str, stack_dir: Path, place: Place
) -> None:
    """Jobs, code and checkpoints of two masters are on S3. The leader stands still, the other one takes its
    job over, and then the first one goes on."""
    options = {**options_of(place.address), "high-availability.storageDir": f"{place.url}/ha"}
    with masters_in(tmp_path, zookeeper, options=options) as cluster, cluster.client() as client:
        first, second = cluster.pair()
        env = us.Environment({**STREAMING, "parallelism.default": "2"}, target="remote")
        place.pipeline(env, rows_per_second=2_000)
        graph, code = env.job_graph("on S3")
        job = client.submit(SubmitRequest(graph=graph, artifact=pack(code), config=OFTEN)).job_id
        await_job(client, job, lambda info: info.checkpoints_completed >= 3, "checkpoints")
        first.send(signal.SIGSTOP)
        cluster.await_leader(second)
        await_job(client, job, lambda info: info.state == "FINISHED", "the job ends")
        eventually(
            lambda: b'"cleaned":true' in cluster.stored()[f"/results/{job}"][0], "it is cleaned up", WAIT_S
        )
        before = place.system.find(place.url, detail=True)
        first.send(signal.SIGCONT)
        cluster.await_contenders(2)
        first.assert_nothing_is_left()
        time.sleep(QUIET_S)  # for what must not happen there is nothing to wait for
        after = place.system.find(place.url, detail=True)
        assert {path: info["ETag"] for path, info in after.items()} == {
            path: info["ETag"] for path, info in before.items()
        }
    assert place.files == place.table == list(range(ROWS))
    assert [path for path in before if path.startswith(f"{place.url.removeprefix('s3://')}/ha/")]
