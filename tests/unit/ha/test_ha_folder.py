"""What can be wrong with the folder of a cluster; what holds of every store is in tests/contract."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.eventually import WAIT_S
from unistream.base import durable_files
from unistream.base.errors import (
    ConfigError,
    CorruptSnapshot,
    Fenced,
    FolderInUse,
    OutcomeUnknown,
    Unreachable,
)
from unistream.base.ids import LeaderEpoch
from unistream.base.process_mark import process_name
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.ha.single_node import LOCK_NAME, LOOKS_MAX, FolderElection, FolderLock, holder
from unistream.port.ha import ContenderInfo, HaStore, LeaderInfo


def store(folder: Path) -> FolderHaStore:
    return FolderHaStore(folder, claim_folder(folder))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("files", "why"),
    [
        pytest.param(
            {"notes.txt": b"mine"}, r"has files of something else \(notes.txt\)", id="foreign files"
        ),
        pytest.param({"cluster": b"\x00"}, "is not of unistream", id="foreign marker"),
        pytest.param({"cluster": b"[]"}, "is not of unistream", id="another shape"),
        pytest.param(
            {"cluster": b'{"product":"flink","format":1}'}, "written by flink", id="another product"
        ),
        pytest.param(
            {"cluster": b'{"product":"unistream","format":2}'}, "in format 2; .* upgrade", id="newer"
        ),
    ],
)
def test_what_is_not_ours_is_refused_and_left_as_it_is(
    tmp_path: Path, files: dict[str, bytes], why: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=why):
        claim_folder(tmp_path)
    assert tree(tmp_path) == files


def test_an_epoch_that_is_no_number_is_not_guessed(tmp_path: Path) -> None:
    claim_folder(tmp_path)
    (tmp_path / "epoch").write_bytes(b"many\n")
    with pytest.raises(CorruptSnapshot, match="is not the epoch of a cluster"):
        claim_folder(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"", "was not written by unistream", id="empty"),
        pytest.param(b"x", "was not written by unistream", id="foreign"),
        pytest.param(b"unistream-ha 2 version=1 crc32c=00000000\n", "has format 2", id="newer"),
        pytest.param(
            b"unistream-ha 1 version=1 crc32c=00000001\n", "does not match its checksum", id="altered"
        ),
    ],
)
def test_a_value_that_cannot_be_read_is_never_skipped(tmp_path: Path, content: bytes, why: str) -> None:
    leader = store(tmp_path)
    leader.create("a", b"1")
    (tmp_path / "values" / "a" / ".value").write_bytes(content)
    for use in (
        leader.read,
        lambda name: leader.create(name, b"1"),
        lambda name: leader.replace(name, b"1", 1),
    ):
        with pytest.raises(CorruptSnapshot, match=why):
            use("a")
    assert (tmp_path / "values" / "a" / ".value").read_bytes() == content


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = store(tmp_path)
    leader.create("a", b"1")
    before = tree(tmp_path)

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(durable_files, "write", full)
        entry = leader.read("a")
        assert entry is not None
        with pytest.raises(Unreachable, match="No space left on device; nothing was changed"):
            leader.replace("a", b"2", entry.version)
        with pytest.raises(Unreachable, match="No space left"):
            leader.create("b", b"2")
    assert tree(tmp_path) == before
    leader.create("b", b"2")


def test_a_name_that_may_not_last_is_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = store(tmp_path)
    leader.create("a", b"1")
    real = durable_files.sync

    def failing(path: str | Path, *more: object) -> None:
        if Path(path).name in ("a", "values"):
            raise OSError(errno.EIO, "Input/output error")
        real(path)

    monkeypatch.setattr(durable_files, "sync", failing)
    entry = leader.read("a")
    assert entry is not None
    with pytest.raises(OutcomeUnknown):
        leader.replace("a", b"2", entry.version)
    with pytest.raises(OutcomeUnknown):
        leader.remove("a")


def test_a_folder_that_was_removed_is_no_new_one(tmp_path: Path) -> None:
    leader = store(tmp_path / "ha")
    shutil.rmtree(tmp_path / "ha")
    with pytest.raises(Fenced, match="was removed"):
        leader.create("a", b"1")
    assert not (tmp_path / "ha").exists()


def test_what_a_kill_left_of_a_removal_goes_with_the_next_leader(tmp_path: Path) -> None:
    store(tmp_path).create("a/b", b"1")
    (tmp_path / "values" / "a").rename(tmp_path / ".removed-0123")
    assert store(tmp_path).children("") == []
    assert not (tmp_path / ".removed-0123").exists()


@pytest.mark.parametrize("cut_off", ["results/a", "results/a/.b", "jobs/b/job"])
def test_a_write_that_was_cut_off_before_its_value_leaves_no_name(tmp_path: Path, cut_off: str) -> None:
    """A job whose result was begun and not written would be taken for ended, and vanish."""
    written = store(tmp_path)
    written.create("jobs/a/job", b"1")
    (tmp_path / "values" / cut_off).mkdir(parents=True)
    read = store(tmp_path)
    assert (read.children("jobs"), read.children("results")) == (["a"], [])
    read.create("results/a", b"2")
    assert read.children("results") == ["a"]


WRITES = {
    "create": ("leader.create('results/new', b'new')", {"value.folder_made", "value.written"}),
    "replace": (
        "leader.replace('jobs/a/job', b'new', entry.version)",
        {"value.folder_made", "value.written"},
    ),
    "remove": ("leader.remove('jobs/a/job')", set[str]()),
    "remove with what is below": ("leader.remove('jobs/a')", set[str]()),
    "publish": ("leader.publish(b'new')", {"value.folder_made", "value.written"}),
}
"""What a process writes, and where a kill leaves all as it was; behind the others it is as written."""

PUT = ("value.folder_made", "value.written", "value.named")


@pytest.mark.parametrize(
    ("write", "point"),
    [
        (write, point)
        for write in WRITES
        for point in (("value.removed",) if write.startswith("remove") else PUT)
    ],
)
def test_a_kill_during_a_write_leaves_the_old_or_the_new(tmp_path: Path, write: str, point: str) -> None:
    folders = {name: tmp_path / name for name in ("killed", "before", "after")}
    for folder in folders.values():
        leader = store(folder)
        leader.create("jobs/a/job", b"old")
        leader.create("jobs/b/job", b"other")
        leader.publish(b"old")
    statement, unchanged = WRITES[write]
    for name, ending in (("after", 0), ("killed", -signal.SIGKILL)):
        code = (
            "from pathlib import Path\nfrom unistream.ha.folder_store import FolderHaStore\n"
            f"leader = FolderHaStore(Path({str(folders[name])!r}), 1)\n"
            f"entry = leader.read('jobs/a/job')\n{statement}"
        )
        armed = {"UNISTREAM_CRASH_POINTS": point, "UNISTREAM_TESTING": "1"} if ending else {}
        ran = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | armed, timeout=WAIT_S, check=False
        )
        assert ran.returncode == ending
    expected = folders["before" if point in unchanged else "after"]
    assert seen_by_the_next_leader(folders["killed"]) == seen_by_the_next_leader(expected)
    assert not list(folders["killed"].glob(".removed*"))


def seen_by_the_next_leader(folder: Path) -> dict[str, object]:
    """All names and values, and what it can do with them."""
    next_leader = store(folder)

    def below(name: str) -> Iterator[tuple[str, bytes | None]]:
        for child in next_leader.children(name):
            path = f"{name}/{child}" if name else child
            entry = next_leader.read(path)
            yield path, None if entry is None else entry.value
            yield from below(path)

    seen = dict(below(""))
    published = (folder / "leader").read_bytes()
    next_leader.create("results/later", b"1")
    next_leader.remove("results")
    assert next_leader.children("results") == []
    return {**seen, "published": published}


class Seen:
    """A contender that keeps what it was given."""

    def __init__(self) -> None:
        self.stores: list[HaStore] = []

    def granted(self, store: HaStore) -> None:
        self.stores.append(store)

    def suspended(self) -> None: ...

    def resumed(self) -> None: ...

    def revoked(self, reason: str) -> None: ...


def test_one_process_leads_at_a_time(tmp_path: Path) -> None:
    seen = Seen()
    with FolderElection(tmp_path) as first:
        assert first.contenders() == ()
        first.start(seen)
        assert first.contenders() == (ContenderInfo(process=process_name(), leads=True),)
        with pytest.raises(ConfigError, match="in use by another cluster"):
            FolderElection(tmp_path).start(seen)
        first.publish(LeaderInfo(epoch=LeaderEpoch(1), cluster="c", rest_url="http://here"))
    with FolderElection(tmp_path) as second:
        second.start(seen)
    assert [leader.epoch for leader in seen.stores] == [1, 2]
    assert b"http://here" in (tmp_path / "ha" / "leader").read_bytes()
    with pytest.raises(Fenced):
        first.publish(LeaderInfo(epoch=LeaderEpoch(1), cluster="c"))


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    hold = f"lock = FolderLock({str(tmp_path)!r}); print(1, flush=True); input()"
    code = f"from unistream.ha.single_node import FolderLock; {hold}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"1\n"
        with pytest.raises(ConfigError, match="in use by another cluster"):
            FolderLock(tmp_path)
        holder.kill()
        holder.wait(WAIT_S)
    FolderLock(tmp_path).close()


@pytest.fixture
def look(tmp_path: Path) -> Iterator[BinaryIO]:
    """Another process has begun to look who has the folder; closed, it has ended."""
    with (tmp_path / LOCK_NAME).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield file


def test_a_master_that_starts_waits_for_those_that_look(tmp_path: Path, look: BinaryIO) -> None:
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        assert holder(tmp_path) is None, "nobody has it yet, and it can be looked at meanwhile"
        if len(waited) == 3:
            look.close()

    with FolderLock(tmp_path, pause):
        assert len(waited) == 3
        assert holder(tmp_path) == os.getpid()
    assert holder(tmp_path) is None


def test_a_look_that_does_not_end_is_not_waited_for_without_end(tmp_path: Path, look: BinaryIO) -> None:
    waited: list[float] = []
    with pytest.raises(FolderInUse):
        FolderLock(tmp_path, waited.append)
    assert len(waited) == LOOKS_MAX
    assert not look.closed


def test_a_master_does_not_wait_for_another_one(tmp_path: Path) -> None:
    def pause(_: float) -> None:
        raise AssertionError("it is refused at once")

    with FolderLock(tmp_path), pytest.raises(FolderInUse) as refused:
        FolderLock(tmp_path, pause)
    assert refused.value.pid == os.getpid()
