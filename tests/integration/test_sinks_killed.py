"""Every sink in a process that is killed at each of its steps, twice, and is started again.

The suite of dimensions (`tests/contract/sinks`) stays in one process and raises what stands for a death. Here
nothing of the process is left: no open file, no connection, no transaction that is ended in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.sinks.model import difference, held
from tests.contract.sinks.rig import Rig, Way
from tests.contract.sinks.rigs.every import RIGS
from tests.contract.sinks.rigs.file import FileRig
from tests.eventually import WAIT_S
from tests.integration.killed_sink import Line
from unistream.base.crash_points import AFTER_VARIABLE, POINTS_VARIABLE

FIRST, LATER = WHEN = ("a new table", "a table with rows, after a commit")
Dying = tuple[str, str, str]
"""A way of the rig, a step, and of which commit."""
OF_FIRST_COMMITS = ("kafka.line_written",)


def steps(rig: type[Rig], way: Way, when: str) -> list[str]:
    """At which a process can be killed then. Those of one way follow a commit that they build on."""
    found = [*rig.staging, *rig.steps, *(way.steps if when == LATER else ())]
    return [one for one in found if when == FIRST or one not in OF_FIRST_COMMITS]


DYING = [
    pytest.param(name, (way, step, when), id=f"{name}: {way}, {step}, {when}", marks=marks)
    for name, rig in RIGS.items()
    for marks in [[pytest.mark.kafka] if name == "kafka" else []]
    for way, one in rig.ways.items()
    for when in WHEN
    for step in steps(rig, one, when)
]


def test_what_a_killed_process_has_left_is_committed_once(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, lambda name: name)
    expect_each_row_once(rig, tmp_path, ("parquet", "file.first_renamed", FIRST), most=1)


@pytest.mark.parametrize(("name", "dying"), DYING)
def test_each_row_is_there_once_behind_real_deaths(
    name: str, dying: Dying, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    expect_each_row_once(RIGS[name](tmp_path, request.getfixturevalue), tmp_path, dying, most=2)


def expect_each_row_once(rig: Rig, folder: Path, dying: Dying, *, most: int) -> None:
    """`most`: the second death is within what the first has left, where that comes by the same step."""
    name, step, when = dying
    way = rig.ways[name]
    kind = next(one for one in ("text", "64 bits") if (one, name) not in rig.refused)
    line = Line(rig=rig, way=name, kind=kind, folder=folder / "durable")
    line.folder.mkdir()
    rig.sink(way).check(line.old().schema)
    if when == LATER:
        rig.fill(way, line.old())
    # a job that commits once has no commit before its only one
    after = line.committed if when == LATER and way.rule != "overwrite" else None
    codes = [life(line, step, after)]
    while codes[-1] == -signal.SIGKILL and len(codes) < most:
        line = line.next()
        codes.append(life(line, step, after))
    assert codes[0] == -signal.SIGKILL, f"nobody came by {step}"
    assert codes[-1] in (0, -signal.SIGKILL)
    line.next().live()
    expected = line.expected(filled=when == LATER)
    for reader, found in rig.readers(way, line.old().schema):
        rows = held(found)
        assert rows == expected, f"{reader}: {difference(rows, [expected])}"


def life(line: Line, step: str, after: Path | None) -> int:
    """How a process ends that lives it and is killed at the step, if it comes by after that file is there."""
    armed = {POINTS_VARIABLE: step, **({} if after is None else {AFTER_VARIABLE: str(after)})}
    ended = subprocess.run(
        [sys.executable, "-c", "from tests.integration.killed_sink import main; main()", str(line.store())],
        env=os.environ | armed,
        timeout=WAIT_S,
        check=False,
    )
    return ended.returncode
