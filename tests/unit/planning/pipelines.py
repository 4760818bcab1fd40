"""Pipelines that a cluster is asked to plan, some of which are no good."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import unistream as us


def counts(env: us.Environment, limit: int = 10, name: str = "n") -> None:
    """A source with a state, and a sink."""
    source = us.DatagenSource({name: us.datagen.Sequential()}, rows=limit)
    numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.print().uid("out")


def without_states(env: us.Environment) -> None:
    """Lacks the operators of `counts`."""
    source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=None, bounded=False)
    env.from_source(source, us.WatermarkStrategy.no_watermarks(), "others").uid("others").print().uid("out2")


def raises(env: us.Environment) -> None:
    _deeper()


def _deeper() -> None:
    raise ValueError("no such lake")


def exits(env: us.Environment) -> None:
    sys.exit(3)


def ends_at_once(env: us.Environment) -> None:
    os._exit(4)


def never_ends(env: us.Environment) -> None:
    while True:
        pass


def takes_memory(env: us.Environment) -> None:
    whole = [bytes(2**20) for _ in range(8_192)]
    assert whole


def prints_and_writes(env: us.Environment) -> None:
    """Writes where it is, and into its home."""
    print("noise " * 1_000)
    Path("left").write_text("here")
    (Path.home() / "cache").write_text("here")
    counts(env)


def tells(env: us.Environment) -> None:
    """What of its surroundings it can see, as an error."""
    open_files = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            open_files.append(os.readlink(f"/proc/self/fd/{fd}"))
    surprising = [file for file in open_files if not file.startswith(("pipe:", "/dev/", "/proc/"))]
    raise ValueError(repr((dict(os.environ), os.getcwd(), surprising)))


def leaves_a_child(env: us.Environment, note: str = "") -> None:
    """Starts a process that would go on."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(note).write_text(str(child.pid))
    counts(env)


def checkpoints_in_etc(env: us.Environment) -> None:
    """Names a place by itself."""
    env._set({"execution.checkpointing.dir": "/etc"})
    counts(env)
