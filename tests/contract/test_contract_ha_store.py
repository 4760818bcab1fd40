"""What every `HaStore` promises.

An adapter is a subclass of `HaStoreContract` with a fixture `leaders`. Those that need no server belong at
the end of this file; ZooKeeper's is in tests/integration/test_zookeeper_store.py.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest

from unistream.base.errors import ConfigError, Fenced
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.port.ha import HaEntry, HaStore
from unistream.port.storage import Created

BYTES = [
    b"",
    b"\x00",
    b"\xff" * 3,
    b"a\nb\r\n",
    "é".encode(),
    bytes(range(256)),
    b"unistream 2\n",
    b"x" * 100_000,
]
FOREIGN_NAMES = [
    "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "a/./b", "./a", "a\\b", "a\x00b",
    "a\nb", "a b", "é", "~", "%2e%2e", ".a", "a" * 201, "a" * 1_025,
]  # fmt: skip


class Leaders(Protocol):
    """Leaders of one cluster, one after the other, on the same durable state."""

    def new(self) -> HaStore:
        """The store of a new leader. Those of earlier ones stay open, and nobody says to them that their
        time is over."""
        ...


def entry(store: HaStore, name: str) -> HaEntry:
    found = store.read(name)
    assert found is not None, f"{name} is stored"
    return found


WRITES: dict[str, Callable[[HaStore], object]] = {
    "create": lambda store: store.create("new", b"2"),
    "create below": lambda store: store.create("jobs/1/job", b"2"),
    "create what is there": lambda store: store.create("a/b", b"1"),
    "replace": lambda store: store.replace("a/b", b"2", entry(store, "a/b").version),
    "replace another version": lambda store: store.replace("a/b", b"2", -5),
    "remove": lambda store: store.remove("a"),
    "remove what is not there": lambda store: store.remove("new"),
    "check": lambda store: store.check(),
}


class HaStoreContract:
    """Collected where it has a subclass."""

    # --- one value --------------------------------------------------------------------------------

    def test_a_value_is_created_once(self, leaders: Leaders) -> None:
        store = leaders.new()
        assert store.read("a/b") is None
        assert store.create("a/b", b"1") is Created.NEW
        assert store.create("a/b", b"1") is Created.EXISTS
        with pytest.raises(Fenced, match="a/b"):
            store.create("a/b", b"2")
        assert entry(store, "a/b").value == b"1"

    @pytest.mark.parametrize("value", BYTES, ids=lambda value: f"{len(value)} bytes, {value[:4]!r}")
    def test_a_value_has_any_bytes(self, leaders: Leaders, value: bytes) -> None:
        store = leaders.new()
        assert store.create("created", value) is Created.NEW
        assert store.create("created", value) is Created.EXISTS
        store.create("replaced", b"before")
        store.replace("replaced", value, entry(store, "replaced").version)
        assert (entry(store, "created").value, entry(store, "replaced").value) == (value, value)

    def test_a_version_is_replaced_once(self, leaders: Leaders) -> None:
        store = leaders.new()
        store.create("a", b"1")
        first = entry(store, "a").version
        second = store.replace("a", b"2", first)
        assert first < second
        assert store.read("a") == HaEntry(b"2", second)
        for version in (first, second + 1, -1):
            with pytest.raises(Fenced, match="a"):
                store.replace("a", b"3", version)
        assert store.read("a") == HaEntry(b"2", second)
        assert store.replace("a", b"2", second) > second, "also by the same value"

    def test_nothing_is_not_replaced(self, leaders: Leaders) -> None:
        store = leaders.new()
        store.create("a/b", b"1")
        for name in ("missing", "a", "a/b/c"):
            with pytest.raises(Fenced, match=name):
                store.replace(name, b"2", 0)
        assert (store.read("missing"), store.read("a"), store.read("a/b/c")) == (None, None, None)

    def test_a_version_of_before_a_removal_is_not_replaced(self, leaders: Leaders) -> None:
        store = leaders.new()
        store.create("a", b"1")
        before = entry(store, "a").version
        store.remove("a")
        store.create("a", b"1")
        with pytest.raises(Fenced, match="a"):
            store.replace("a", b"2", before)
        assert entry(store, "a").value == b"1"

    # --- names ------------------------------------------------------------------------------------

    def test_names_are_a_tree(self, leaders: Leaders) -> None:
        store = leaders.new()
        for name in ("jobs/2/job", "jobs/10/job", "jobs/2/checkpoints/7", "results/1", "top"):
            store.create(name, name.encode())
        assert list(store.children("")) == ["jobs", "results", "top"]
        assert list(store.children("jobs")) == ["10", "2"]
        assert list(store.children("jobs/2")) == ["checkpoints", "job"]
        assert list(store.children("jobs/2/job")) == []
        assert list(store.children("missing")) == []
        assert store.read("jobs/2") is None, "it only has names below it"

    def test_a_name_may_have_a_value_and_names_below_it(self, leaders: Leaders) -> None:
        store = leaders.new()
        store.create("a/b/c", b"below")
        assert store.create("a", b"above") is Created.NEW
        assert store.create("a", b"above") is Created.EXISTS
        assert store.create("a/b/d", b"next to it") is Created.NEW
        assert (entry(store, "a").value, store.read("a/b")) == (b"above", None)
        assert list(store.children("a/b")) == ["c", "d"]
        store.remove("a/b")
        assert (entry(store, "a").value, list(store.children("a"))) == (b"above", [])

    def test_a_name_is_removed_with_all_below_it(self, leaders: Leaders) -> None:
        store = leaders.new()
        for name in ("jobs/1", "jobs/1/job", "jobs/1/checkpoints/1", "jobs/1/checkpoints/2", "jobs/11/job"):
            store.create(name, b"1")
        store.remove("jobs/1")
        assert list(store.children("jobs")) == ["11"]
        assert [store.read(name) for name in ("jobs/1", "jobs/1/job", "jobs/1/checkpoints/2")] == [None] * 3
        store.remove("jobs/1")
        store.remove("never/there")
        assert entry(store, "jobs/11/job").value == b"1"

    def test_a_name_ends_with_the_last_one_below_it(self, leaders: Leaders) -> None:
        store = leaders.new()
        store.create("a/b/c/d", b"1")
        store.create("a/e", b"1")
        store.remove("a/b/c/d")
        assert list(store.children("a")) == ["e"]
        store.remove("a/e")
        assert list(store.children("")) == []

    def test_many_names_are_removed(self, leaders: Leaders) -> None:
        store = leaders.new()
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda n: store.create(f"jobs/1/checkpoints/{n}", b"x" * 100), range(250)))
        assert len(store.children("jobs/1/checkpoints")) == 250
        store.remove("jobs/1")
        assert list(store.children("jobs/1")) == []

    @pytest.mark.parametrize("name", FOREIGN_NAMES, ids=lambda name: ascii(name[:12]))
    def test_other_names_are_refused(self, leaders: Leaders, name: str) -> None:
        store = leaders.new()
        store.create("kept", b"1")
        for use in (
            store.read,
            store.remove,
            lambda name: store.create(name, b"1"),
            lambda name: store.replace(name, b"1", 0),
            lambda name: store.children(name) if name else store.read(name),
        ):
            with pytest.raises(ConfigError, match="not a name"):
                use(name)
        assert list(store.children("")) == ["kept"]

    def test_a_large_value_is_refused_and_the_largest_is_stored(self, leaders: Leaders) -> None:
        store = leaders.new()
        largest = bytes(512 * 1024)
        assert store.create("a", largest) is Created.NEW
        version = entry(store, "a").version
        with pytest.raises(ConfigError, match="524289"):
            store.create("b", largest + b"1")
        with pytest.raises(ConfigError, match="524289"):
            store.replace("a", largest + b"1", version)
        assert store.read("a") == HaEntry(largest, version)
        assert store.read("b") is None

    # --- leaders ----------------------------------------------------------------------------------

    def test_epochs_grow_and_a_new_leader_sees_all(self, leaders: Leaders) -> None:
        epochs = []
        for n in range(4):
            store = leaders.new()
            epochs.append(store.epoch)
            for before in range(n):
                assert entry(store, f"of/{before}").value == str(before).encode()
            store.create(f"of/{n}", str(n).encode())
            store.check()
        assert epochs == sorted(set(epochs))

    @pytest.mark.parametrize("write", WRITES)
    def test_an_old_leader_writes_nothing(self, leaders: Leaders, write: str) -> None:
        old = leaders.new()
        old.create("a/b", b"1")
        before = old.read("a/b")
        old.check()
        new = leaders.new()
        for _ in range(2):
            with pytest.raises(Fenced):
                WRITES[write](old)
        assert new.read("a/b") == before
        assert list(new.children("")) == ["a"], "nor a folder for what it wanted to write"
        assert new.create("a/b", b"1") is Created.EXISTS

    def test_a_new_leader_replaces_what_an_old_one_has_read(self, leaders: Leaders) -> None:
        old = leaders.new()
        old.create("counter", b"1")
        version = entry(old, "counter").version
        new = leaders.new()
        after = new.replace("counter", b"2", version)
        with pytest.raises(Fenced):
            old.replace("counter", b"2", version)
        with pytest.raises(Fenced):
            old.replace("counter", b"3", after)
        assert old.read("counter") == new.read("counter") == HaEntry(b"2", after), "it may read"

    # --- threads ----------------------------------------------------------------------------------

    def test_two_threads_create_one_value(self, leaders: Leaders) -> None:
        store = leaders.new()
        with ThreadPoolExecutor(max_workers=4) as pool:
            for n in range(10):
                results = list(pool.map(lambda _, n=n: store.create(f"a/{n}/b", b"1"), range(4)))
                assert Created.NEW in results
        assert len(store.children("a")) == 10

    def test_two_threads_count(self, leaders: Leaders) -> None:
        store = leaders.new()
        store.create("counter", b"0")

        def add(_: int) -> int:
            while True:
                now = entry(store, "counter")
                try:
                    store.replace("counter", str(int(now.value) + 1).encode(), now.version)
                except Fenced:
                    continue
                return 1

        with ThreadPoolExecutor(max_workers=4) as pool:
            assert sum(pool.map(add, range(40))) == 40
        assert entry(store, "counter").value == b"40"

    def test_what_one_thread_creates_another_one_may_remove(self, leaders: Leaders) -> None:
        store = leaders.new()

        def create(n: int) -> None:
            store.create(f"jobs/{n % 3}/{n}", b"1")

        def remove(n: int) -> None:
            store.remove(f"jobs/{n % 3}")

        with ThreadPoolExecutor(max_workers=4) as pool:
            started = [pool.submit(use, n) for n in range(40) for use in (create, remove)]
        assert [future.result() for future in started] == [None] * 80
        store.remove("jobs")
        assert list(store.children("")) == []


class FolderLeaders:
    """Each one claims the folder; what it takes away from earlier ones is the epoch alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new(self) -> FolderHaStore:
        return FolderHaStore(self._folder, claim_folder(self._folder))


class TestFolder(HaStoreContract):
    @pytest.fixture
    def leaders(self, tmp_path: Path) -> FolderLeaders:
        return FolderLeaders(tmp_path / "ha")
