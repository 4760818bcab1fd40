"""The watch over a worker's memory."""

from __future__ import annotations

import queue
import sys

import pytest

from tests.eventually import WAIT_S
from unistream.base.config import Configuration
from unistream.core.memory import config_with, cpu_threads, memory_limit, slot_profile, thread_environment
from unistream.model.resources import ANY_PROFILE, ResourceProfile
from unistream.worker.process.limits import MemoryWatch, own_memory


def test_the_watch_says_once_how_much_there_was() -> None:
    said: queue.Queue[str] = queue.Queue()
    sizes = iter([100, 101 << 20])
    watch = MemoryWatch(100 << 20, used=lambda: next(sizes), on_excess=said.put)
    watch.start()
    assert "holds 101 MiB, its limit is 100 MiB" in said.get(timeout=WAIT_S)
    watch.close()
    assert said.empty()


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_own_memory_grows_with_what_is_filled() -> None:
    before = own_memory()
    hoard = bytearray(b"x") * (128 << 20)
    assert own_memory() - before > 100 << 20  # not all of it: pages of files may have gone meanwhile
    del hoard


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("memory_mb", [128, 200, 4096, 20_000])
def test_a_configuration_for_a_profile_gives_that_profile(memory_mb: int, slots: int) -> None:
    profile = ResourceProfile(cpu_cores=1.5, memory_mb=memory_mb)
    values = config_with(profile, slots, {"taskmanager.memory.process.size": "2 gb"})
    config = Configuration(values)
    assert slot_profile(config, slots) == profile
    assert (memory_limit(config, slots) or 0) > memory_mb * slots << 20


def test_what_nobody_has_told_is_no_limit() -> None:
    config = Configuration()
    assert slot_profile(config, 2) == ANY_PROFILE
    assert (memory_limit(config, 2), cpu_threads(config)) == (None, None)
    assert config_with(ANY_PROFILE, 2, {}) == {}
    assert thread_environment(config) == {}


def test_a_fraction_of_a_core_is_one_thread() -> None:
    assert cpu_threads(Configuration({"taskmanager.cpu.cores": "0.5"})) == 1
    assert thread_environment(Configuration({"taskmanager.cpu.cores": "2.5"}))["OMP_NUM_THREADS"] == "3"
