"""What an S3 server refuses for good: each is one sentence, and leaves nothing half-written."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import uuid4

import botocore.auth
import pytest

from tests.contract.sinks.case import batch, context
from tests.contract.test_contract_checkpoint_storage import JOB, manifest
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, LeaderEpoch, LineageId
from unistream.base.object_stores import file_system, use_store
from unistream.connector.delta import DeltaSink
from unistream.connector.file import FileSink
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.sink import SinkWriter
from unistream.storage.artifacts import FsArtifactStore
from unistream.storage.fs import FsCheckpointStorage
from unistream.testing.devtools.object_store import READER_KEY, READER_SECRET, make_bucket, options_of

SENTENCE: Final = re.compile(r"[^\n\x1b]{30,700}")
ONLY_READS: Final = {"s3.access-key": READER_KEY, "s3.secret-key": READER_SECRET}


class Folder:
    """On the server, with a checkpoint in it."""

    def __init__(self, address: str) -> None:
        self.bucket = make_bucket(address, f"refusals-{uuid4().hex[:8]}")
        self.url = f"{self.bucket}/x"
        self.system: Any = file_system(self.url)[0]
        storage = FsCheckpointStorage(f"{self.url}/checkpoints")
        self.checkpoint = storage.directory(JOB, CheckpointId(1), SnapshotKind.CHECKPOINT, None)
        storage.write_manifest(self.checkpoint, manifest(1))

    @property
    def contents(self) -> list[str]:
        below = self.bucket.removeprefix("s3://")
        return [*self.system.find(below), *(one.path for one in self.system.uploads(below))]

    def remove_bucket(self) -> None:
        for path in self.system.find(self.bucket):
            self.system.rm_file(path)
        self.system.call_s3("delete_bucket", Bucket=self.bucket.removeprefix("s3://"))


def _write(writer: SinkWriter) -> None:
    writer.open(context(), ())
    writer.write(batch(1))
    writer.flush(end_of_input=False)
    writer.prepare_commit(CheckpointId(1))


def _begin_table(folder: Folder) -> None:
    sink = DeltaSink(f"{folder.url}/table")
    sink.check_new_line(LineageId("line"))
    _write(sink.create_writer())


READS: Final[dict[str, Callable[[Folder], object]]] = {
    "a restore": lambda folder: FsCheckpointStorage(f"{folder.url}/checkpoints").read_manifest(
        folder.checkpoint
    ),
}
WRITES: Final[dict[str, Callable[[Folder], object]]] = {
    "the start of a job": lambda folder: FsCheckpointStorage(f"{folder.url}/checkpoints").check_writable(),
    "the code of a job": lambda folder: FsArtifactStore(f"{folder.url}/ha").put(b"code", LeaderEpoch(1)),
    "a file sink": lambda folder: _write(FileSink(f"{folder.url}/files").create_writer()),
    "a Delta sink": _begin_table,
}
REFUSED: Final[dict[str, dict[str, str]]] = {
    "a wrong secret": {"s3.secret-key": "a-wrong-one"},
    "an unknown user": {"s3.access-key": "nobody"},
    "one who may only read": ONLY_READS,
    "a clock that is an hour ahead": {},
    "a bucket that was removed": {},
}


@pytest.fixture
def folder(s3: str) -> Iterator[Folder]:
    yield Folder(s3)
    make_bucket(s3, "unistream")


@pytest.mark.parametrize("why", REFUSED)
def test_what_a_store_refuses_is_one_sentence_and_leaves_nothing(
    s3: str, folder: Folder, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    options = {**options_of(s3), **REFUSED[why], "s3.attempts.maximum": "2"}
    if "bucket" in why:
        folder.remove_bucket()
    before = [] if "bucket" in why else folder.contents
    if "clock" in why:
        now = botocore.auth.get_current_datetime
        monkeypatch.setattr(
            botocore.auth,
            "get_current_datetime",
            lambda *of, **more: now(*of, **more) + dt.timedelta(hours=1),
        )
    use_store(Configuration(options))
    for what, act in (WRITES if REFUSED[why] is ONLY_READS else READS | WRITES).items():
        if "clock" in why and what == "a Delta sink":
            continue  # deltalake signs by the clock of this machine
        with pytest.raises(ConfigError) as refused:
            act(folder)
        said = str(refused.value)
        assert SENTENCE.fullmatch(said), (what, said)
        assert "s3://" in said, (what, said)
        assert not re.search("a-wrong-one|unistream-secret|reader-secret", said), (what, said)
        if "bucket" in why:
            assert "bucket" in said, (what, said)
    monkeypatch.undo()
    assert "bucket" in why or folder.contents == before
