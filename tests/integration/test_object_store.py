"""Whole jobs that have everything on S3: checkpoints, savepoints, code, files and a table; kills at named
places, a store that fails, savepoints that are moved."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import (
    OF_OBJECT_STORE,
    RECOVERING,
    Crashes,
    in_the_gate,
    points_in_code,
)
from tests.modes import STREAMING
from unistream.base.object_stores import delta_options, file_system
from unistream.testing.devtools.object_store import make_bucket, options_of

OFTEN = {"execution.checkpointing.interval": "400 ms", **RECOVERING}


class Place:
    """A folder of its own on the store.

    Attributes:
        url: Of the folder.
        config: With which a job has its checkpoints there.
    """

    def __init__(self, address: str) -> None:
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
    "between the parts of a file": ("upload.part_stored:3",),
    "with its files staged": ("file.staged:3",),
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
    crashes.arm(*KILLS[what])
    env = us.Environment({**place.config, **OFTEN}, target="local")
    place.pipeline(env)
    result = env.execute("on S3")
    assert result.state == "FINISHED"
    crashes.assert_happened()
    assert result.restarts >= 1
    assert place.files == place.table == list(range(ROWS))
    assert place.uploads == [], "what the dead one had uploaded was aborted"
    left = place.system.find(f"{place.url}/checkpoints")
    assert [path for path in left if path.endswith(("_metadata", ".arrow"))] == []
