"""No more places of bounded jobs at a time than cores, also when a process that holds one is killed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.eventually import WAIT_S, eventually
from unistream.host.core_slots import core_slot

HOLD = """
import sys, time
from unistream.host.core_slots import core_slot
with core_slot(sys.argv[1], 1):
    print("held", flush=True)
    time.sleep(600)
"""


def test_as_many_at_a_time_as_there_are(tmp_path: Path) -> None:
    inside, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with core_slot(str(tmp_path / "slots"), 2):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.05)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert most == 2


def test_a_killed_process_leaves_its_slot(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    got = threading.Event()

    def wait() -> None:
        with core_slot(str(tmp_path), 1):
            got.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not got.wait(0.2)
    holder.kill()
    holder.wait(WAIT_S)
    holder.stdout.close()
    eventually(got.is_set, "the slot is free")


def test_without_a_folder_nothing_is_waited_for(tmp_path: Path) -> None:
    with core_slot("", 0), core_slot("", 0):
        assert list(tmp_path.iterdir()) == []
