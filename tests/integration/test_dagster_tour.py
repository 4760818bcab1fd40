"""The tour through a stream in Dagster, block by block, as a reader types it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.eventually import WAIT_S, eventually
from tests.integration.dagster_service import OF_DAGSTER_MATRIX
from unistream.testing.devtools.kafka_tools import create_topic

pytestmark = [OF_DAGSTER_MATRIX, pytest.mark.kafka]

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "tour.md"
BLOCK = re.compile(r"```(python|sh)\n(.*?)```", re.DOTALL)
MORE = "python send.py 600 300\n"
SWITCH_ON = re.compile(r"`(dagster schedule start [^`]+)`")


class Reader:
    """Follows the page in `folder`. `kafka`: the broker, instead of the one that the page starts."""

    def __init__(self, folder: Path, kafka: str, topic: str) -> None:
        self.folder, self._kafka, self._topic = folder, kafka, topic
        self._background: list[subprocess.Popen[str]] = []
        tools = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "UNISTREAM_HOME": str(folder / "home"),
            "DAGSTER_HOME": str(folder / "dagster"),
            "PATH": f"{tools}:{os.environ['PATH']}",
        }
        (folder / "dagster").mkdir()
        self.printed: list[str] = []

    def follow(self, kind: str, text: str) -> None:
        if kind == "python":
            name, _, code = text.partition("\n")
            code = code.replace("127.0.0.1:9092", self._kafka).replace('"orders",', f'"{self._topic}",', 1)
            (self.folder / name.removeprefix("# ")).write_text(code)
            return
        first, *lines = text.splitlines()
        if first == "# in the background":
            [line] = lines
            self._start(f"{line} -D rest.port=0")
            return
        for line in (first, *lines):
            self.printed.append(self.type(line))

    def type(self, line: str) -> str:
        """What the command prints."""
        done = subprocess.run(
            line,
            shell=True,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, (line, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    def _start(self, line: str) -> None:
        process = subprocess.Popen(
            line.split(),
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._background.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), "the cluster says where it is"

    def close(self) -> None:
        for process in self._background:
            family = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=WAIT_S)
            assert psutil.wait_procs(family, timeout=WAIT_S)[1] == []


@pytest.fixture
def reader(tmp_path: Path, kafka: str) -> Iterator[Reader]:
    topic = f"orders-{time.time_ns()}"
    create_topic(kafka, topic, partitions=1)
    reader = Reader(tmp_path, kafka, topic)
    yield reader
    reader.close()


def test_the_tour_is_as_it_says(reader: Reader) -> None:
    looked: list[int] = []
    for kind, text in BLOCK.findall(PAGE.read_text()):
        if text == MORE:
            eventually(lambda: orders_in(reader) > 0, "minutes are in the table", WAIT_S, 1.0)
            looked.append(orders_in(reader))
        reader.follow(kind, text)
        if text == MORE:
            eventually(lambda: orders_in(reader) > looked[-1], "more minutes are", WAIT_S, 1.0)
    assert "600 orders sent" in "\n".join(reader.printed)
    jobs = [line.split()[1:3] for line in reader.printed[-1].splitlines() if " orders " in line]
    assert jobs == [["orders", "FINISHED"]] * 3, "one was stopped by the schedule, one replaced, one stopped"
    [switch_on] = SWITCH_ON.findall(PAGE.read_text())
    reader.type(switch_on)
    assert "[RUNNING]" in reader.type("dagster schedule list -f definitions.py")
    table = pq.read_table(DeltaTable(str(reader.folder / "lake" / "orders_per_minute")).file_uris())
    windows = list(zip(table["shop"].to_pylist(), table["window_start"].to_pylist(), strict=True))
    assert len(set(windows)) == len(windows), "no minute twice"


def orders_in(reader: Reader) -> int:
    try:
        return int(reader.type("python look.py").split()[0])
    except AssertionError as error:
        if "TableNotFound" in str(error):
            return 0
        raise
