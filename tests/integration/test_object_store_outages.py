"""A job that has everything on S3, and the real server of which is killed under it, or stands still."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import load_catalog

import unistream as us
from tests.eventually import eventually
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import submit
from tests.integration.test_object_store import Place
from tests.s3_proxy import FaultKind, S3Proxy
from tests.s3_server import S3Server
from unistream.base.config import Configuration
from unistream.base.errors import UnistreamError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.testing.devtools.object_store import ACCESS_KEY, SECRET_KEY, make_bucket, options_of

WAIT_S: Final = 240.0  # the server starts again, and every sink with it
SHORT: Final = {  # a request fails for good within a few seconds
    "s3.connection.timeout": "2 s",
    "s3.attempts.maximum": "3",
    "execution.checkpointing.interval": "400 ms",
}
RESTARTING: Final = {
    "restart-strategy.type": "exponential-delay",
    "restart-strategy.exponential-delay.initial-backoff": "200 ms",
    "restart-strategy.exponential-delay.max-backoff": "2 s",
}
RETAINED: Final = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
ONE_LINE: Final = re.compile(r"[^\n\x1b]{20,1500}")


class Lake(Place):
    """With an Iceberg table: its files are on the store, its catalog is not."""

    def __init__(self, address: str, folder: Path) -> None:
        super().__init__(address)
        self._catalog = f"sqlite:///{folder / 'catalog.db'}"

    def catalog(self, address: str) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": self._catalog,
            "warehouse": f"{self.url}/iceberg",
            "s3.endpoint": f"http://{address}",
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "s3.region": "us-east-1",
            "s3.connect-timeout": "2",
            "s3.request-timeout": "2",
        }

    @property
    def iceberg(self) -> list[int]:
        """Ids of the rows of the Iceberg table."""
        catalog = load_catalog("default", **self.catalog(self.address))
        try:
            ids: list[int] = catalog.load_table("lake.rows").scan().to_arrow()["id"].to_pylist()
        finally:
            catalog.close()
        return sorted(ids)

    def all_sinks(self, env: us.Environment, address: str, rows_per_second: int) -> None:
        rows = rows_of(env, rows_per_second)
        rows.sink_to(us.FileSink(f"{self.url}/files")).uid("files")
        rows.sink_to(us.DeltaSink(f"{self.url}/table")).uid("table")
        rows.sink_to(us.IcebergSink("lake.rows", catalog_properties=self.catalog(address))).uid("iceberg")

    def assert_exact(self, *, retained: bool = False) -> None:
        """Every row once, and nothing is left that nobody needs."""
        make_bucket(self.address, "unistream")  # the store of this process is the server itself
        assert self.files == list(range(ROWS))
        assert self.table == list(range(ROWS))
        assert self.iceberg == list(range(ROWS))
        ours = [path for path in self.uploads if "/iceberg/" not in path]  # pyarrow's: a rule of the bucket
        assert ours == [], "what nobody will complete is aborted"
        left = self.system.find(f"{self.url}/checkpoints")
        assert retained or [path for path in left if path.endswith(("_metadata", ".arrow"))] == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with S3Server(tmp_path / "s3") as server:
        make_bucket(server.address, "unistream")
        yield server


@contextmanager
def running(
    lake: Lake,
    folder: Path,
    address: str,
    config: Mapping[str, str],
    *,
    rows_per_second: int = 8_000,
    savepoint: str | None = None,
    iceberg: bool = True,
) -> Iterator[EmbeddedJobClient]:
    """A job with all sinks, and a checkpoint; it and its cluster reach the store at `address`."""
    values = {**lake.config, **options_of(address), **SHORT, "parallelism.default": "1"}
    with EmbeddedCluster("local", Configuration(values), workdir=folder / "cluster", rest=False) as cluster:
        env = us.Environment(values)
        if iceberg:
            lake.all_sinks(env, address, rows_per_second)
        else:
            lake.pipeline(env, rows_per_second=rows_per_second)
        job = submit(cluster, env, {**SHORT, **config}, savepoint)
        if savepoint is None:
            job.wait_for(lambda info: info.checkpoints_completed >= 1, WAIT_S)
        yield job


DEATHS: Final[dict[str, tuple[FaultKind, str, str]]] = {
    "behind a commit of the Delta table": (FaultKind.DEAD_BEHIND, "PUT", "_delta_log/0"),
    "within a commit of the Delta table": (FaultKind.DEAD_WITHIN, "PUT", "_delta_log/0"),
    "behind the manifest of a checkpoint": (FaultKind.DEAD_BEHIND, "PUT", "/_metadata"),
    "within the manifest of a checkpoint": (FaultKind.DEAD_WITHIN, "PUT", "/_metadata"),
    "within a part of an upload": (FaultKind.DEAD_WITHIN, "PUT", "/files/part-"),
    "behind the completion of an upload": (FaultKind.DEAD_BEHIND, "POST", "uploadId="),
    "within the completion of an upload": (FaultKind.DEAD_WITHIN, "POST", "uploadId="),
    "within the beginning of an upload": (FaultKind.DEAD_WITHIN, "POST", "?uploads"),
    "within a file of Iceberg's metadata": (FaultKind.DEAD_WITHIN, "PUT", "/metadata/"),
    "within a removal": (FaultKind.DEAD_WITHIN, "DELETE", "/checkpoints/"),
}


@pytest.mark.parametrize("when", DEATHS)
def test_a_store_that_dies_in_the_middle_of_a_write_loses_and_doubles_nothing(
    tmp_path: Path, server: S3Server, when: str
) -> None:
    kind, method, path = DEATHS[when]
    lake = Lake(server.address, tmp_path)
    with (
        S3Proxy(server.address, server.kill) as proxy,
        running(lake, tmp_path, proxy.address, RESTARTING) as job,
    ):
        fault = proxy.fault(kind, method=method, path=path)
        eventually(lambda: not server.runs, "it dies", WAIT_S)
        server.start()
        result = job.wait(WAIT_S)
    assert fault.hits == 1
    assert result.state == "FINISHED", result.failure
    lake.assert_exact()


@pytest.mark.parametrize("away", ["killed for 25 s", "paused for 20 s"])
def test_a_store_that_is_away_for_longer_than_requests_are_repeated(
    tmp_path: Path, server: S3Server, away: str
) -> None:
    """Without a proxy: connections are refused, or accepted and never answered."""
    lake = Lake(server.address, tmp_path)
    with running(lake, tmp_path, server.address, RESTARTING) as job:
        if away.startswith("killed"):
            server.away(25)
        else:
            server.pause(20)
        result = job.wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    lake.assert_exact()


def test_a_store_that_stays_away_ends_the_job_with_one_sentence_and_its_checkpoint_is_restored_later(
    tmp_path: Path, server: S3Server
) -> None:
    lake = Lake(server.address, tmp_path)
    twice = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "2", **RETAINED}
    with running(lake, tmp_path, server.address, twice) as job:
        server.kill()
        result = job.wait(WAIT_S)
        assert result.state == "FAILED"
        assert result.failure is not None
        assert ONE_LINE.fullmatch(result.failure.message), result.failure.message
        assert "s3://" in result.failure.message
        server.start()
    checkpoint = result.latest_checkpoint
    with running(lake, tmp_path / "again", server.address, {}, savepoint=checkpoint) as job:
        assert job.wait(WAIT_S).state == "FINISHED"
    lake.assert_exact(retained=True)


@pytest.mark.parametrize("how", ["stop", "drain", "cancel"])
def test_a_job_that_is_ended_while_the_store_is_away(tmp_path: Path, server: S3Server, how: str) -> None:
    """A stop fails, and the job goes on; a cancellation needs no store."""
    lake = Lake(server.address, tmp_path)
    with running(lake, tmp_path, server.address, RESTARTING, rows_per_second=1_000) as job:
        server.kill()
        if how == "cancel":
            job.cancel()
            assert job.wait(WAIT_S).state == "CANCELED"
            return
        with pytest.raises(UnistreamError) as failed:
            job.stop(target=f"{lake.url}/savepoints", drain=how == "drain")
        assert ONE_LINE.fullmatch(str(failed.value)), str(failed.value)
        assert job.status().ended_ms is None, "the job goes on"
        server.start()
        result = job.wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    lake.assert_exact()


def test_a_bucket_that_is_removed_under_a_job_ends_it_with_one_sentence(
    tmp_path: Path, server: S3Server
) -> None:
    """Which one depends on what misses its objects first: they go before their bucket does."""
    lake = Lake(server.address, tmp_path)
    with running(lake, tmp_path, server.address, RESTARTING, rows_per_second=200, iceberg=False) as job:
        eventually(lambda: _remove_bucket(lake.system), "nobody writes at that moment", WAIT_S)
        result = job.wait(WAIT_S)
    assert result.state == "FAILED"
    assert result.failure is not None
    assert re.search("does not exist|is missing", result.failure.message), result.failure.message
    assert "s3://" in result.failure.message
    assert ONE_LINE.fullmatch(result.failure.message), result.failure.message


def _remove_bucket(system: Any) -> bool:
    for path in system.find("unistream"):
        system.rm_file(path)
    for upload in list(system.uploads("unistream/")):
        system.abort_upload(upload)
    try:
        system.call_s3("delete_bucket", Bucket="unistream")
    except OSError as error:
        if "not empty" not in str(error):
            raise
        return False
    return True
