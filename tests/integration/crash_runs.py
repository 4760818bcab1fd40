"""What tests share that let a process die at a named place and compare the tables afterwards.

    Crashes          which points kill whom, and whether they did
    run_to_end       a pipeline on workers of its own, one of which dies
    Command          `unistream …` in a process of its own, which may be the master that dies
    Lives            a job that is started again by hand, each time its master has died
    keyed_windows    a pipeline whose tables show every row that was lost or doubled
    assert_exact     … and the comparison of the two

Points of a worker are armed for clusters inside the test's own process: their master is that process, and
nobody arms a point of a master there. Points of a master are armed for a `Command`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import duckdb
import psutil
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from tests.walked import walked
from unistream.base.crash_points import (
    AFTER_VARIABLE,
    DIRECTORY_VARIABLE,
    POINTS_VARIABLE,
    TESTING_VARIABLE,
)
from unistream.base.ids import JobId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.client.remote.job_client import JobResult
from unistream.client.remote.rest_client import Poll, RestClient
from unistream.model.codec import decode_manifest
from unistream.model.job_info import JobInfo
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

AWAY_S = 5.0  # a cluster that was killed does not come back under its address
RECOVERING = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "100 ms",
}

PACKAGE = Path(us.__file__).parent
_CALL = re.compile(r"\bcrash_point\(\s*\"([a-z_.]+)\"")
LED_BY = {  # there is something to commit at a restore only behind a crash between checkpoint and commit
    "restore.before_commit": ("committer.before_commit",),
    "restore.committed": ("committer.before_commit",),
}
MATRIX = os.environ.get("UNISTREAM_CRASH_MATRIX") == "1"


T = TypeVar("T")
OF_MATRIX = pytest.mark.skipif(not MATRIX, reason="long: make crash-matrix")

OF_COMMANDS = "backfill."
"""Places in a command that steers jobs; the command is killed there in tests of its own."""
OF_HA_FOLDER = "value."
"""Places in the write of one value: `tests/unit/ha/test_ha_folder` kills there for each kind of write."""

OF_KAFKA_SINK = "kafka."
"""Places in a sink that has a test of its own, `test_kafka_sink`."""

OF_SQL_SINK = "sql."
"""The same, of `test_sql_sink`."""

OF_OBJECT_STORE = "upload."
"""The same, of `test_object_store`."""

OF_REPLAYS = "replay."
"""Places in a command that is killed there in `test_dead_letter_replay`."""

OF_ICEBERG_SINK = "iceberg."
"""The same, of `test_iceberg_sink`."""

OF_GROUPS = "group."
"""The same, of `test_commit_group`."""

OF_COMPACTION = "compaction."
"""The same, of `test_delta_compaction`."""

OF_OTHERS = (
    OF_COMPACTION,
    OF_COMMANDS,
    OF_GROUPS,
    OF_HA_FOLDER,
    OF_ICEBERG_SINK,
    OF_KAFKA_SINK,
    OF_SQL_SINK,
    OF_OBJECT_STORE,
    OF_REPLAYS,
)


def points_in_code(begin: str = "") -> dict[str, set[str]]:
    """Every named place of jobs -> the folders of the package whose modules call it. `begin`: those that
    begin so, which have tests of their own."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for name in _CALL.findall(path.read_text()):
            if not name.startswith(begin) or (not begin and name.startswith(OF_OTHERS)):
                continue
            found.setdefault(name, set()).add(path.relative_to(PACKAGE).parts[0])
    return found


def assert_none_forgotten(places: Iterable[str]) -> None:
    """`places`: those that a test kills at, and those of which it says why they cannot come there. A place
    that is new in the code belongs to the ones or the others."""
    assert sorted(places) == sorted(points_in_code())


def runs(*groups: tuple[str, ...]) -> list[tuple[str, ...]]:
    """One run for each group; with UNISTREAM_CRASH_MATRIX=1 (`make crash-matrix`) one for each place, and
    what lets a job come there."""
    return [alone(place) for group in groups for place in group] if MATRIX else list(groups)


def in_the_gate(values: Sequence[T], *places: int) -> list[T]:
    """Those at `places`, which stand for the others; with UNISTREAM_CRASH_MATRIX=1 all of them."""
    return list(values) if MATRIX else [values[place] for place in places]


def alone(place: str) -> tuple[str, ...]:
    """The kills of a run that is about one place."""
    return (*LED_BY.get(place, ()), place)


class Crashes:
    """Points at which processes die that are started from now on; each point kills once."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._marks = folder / "crashed"
        self._marks.mkdir()
        self.marks = self._marks
        """The folder with a file for each point of those armed last that has killed somebody."""
        self._go: list[Path] = []
        self._monkeypatch = monkeypatch
        self._armed: list[str] = []
        monkeypatch.setenv(TESTING_VARIABLE, "1")
        monkeypatch.setenv("UNISTREAM_HOME", str(folder / "home"))

    def arm(self, *points: str, later: bool = False) -> None:
        """`points`: each ``name`` or ``name:n`` (the n-th time in one process). `later`: they count from `go`
        on."""
        for variable, value in self.environment(*points, later=later).items():
            self._monkeypatch.setenv(variable, value)

    def environment(self, *points: str, later: bool = False) -> dict[str, str]:
        """The same for one process, which is given these variables. Each call arms its points again."""
        self.marks = marks = self._marks / str(len(self._armed))
        marks.mkdir()
        self._armed += [point.partition(":")[0] for point in points]
        after: dict[str, str] = {}
        if later:
            self._go.append(marks.with_suffix(".go"))
            after[AFTER_VARIABLE] = str(self._go[-1])
        return {POINTS_VARIABLE: ",".join(points), DIRECTORY_VARIABLE: str(marks), **after}

    def disarm(self) -> None:
        """Who is started from now on lives."""
        self._monkeypatch.delenv(POINTS_VARIABLE)

    def go(self) -> None:
        """Points that were armed for later until now count from now on."""
        for file in self._go:
            file.touch()

    @property
    def happened(self) -> list[str]:
        return sorted(mark.name for mark in self._marks.glob("*/*"))

    @property
    def all_happened(self) -> bool:
        return self.happened == sorted(self._armed)

    def assert_happened(self) -> None:
        """Every armed point has killed somebody."""
        assert self.happened == sorted(self._armed), "a crash did not happen"


# --- a pipeline on workers of its own -----------------------------------------------------------------


def run_to_end(
    tmp_path: Path,
    crashes: Crashes | None,
    pipeline: Callable[[us.Environment, Path], None],
    config: Mapping[str, str],
    *,
    target: str = "local",
) -> JobResult:
    """Runs `pipeline` into ``lake`` to its end; with `crashes`, all that are armed must come."""
    values = {**STREAMING, "parallelism.default": "2", **config}
    values["execution.checkpointing.dir"] = (tmp_path / "checkpoints").as_uri()
    env = us.Environment(values, target=target)
    pipeline(env, tmp_path / "lake")
    result = env.execute("crash run")
    assert result.state == "FINISHED"
    if crashes is not None:
        crashes.assert_happened()
        assert result.restarts >= 1
    return result


def submit(
    cluster: EmbeddedCluster,
    env: us.Environment,
    config: Mapping[str, str],
    savepoint: str | None = None,
    *,
    by_value: Iterable[ModuleType] = (),
) -> EmbeddedJobClient:
    """`by_value`: modules of tests with functions of the pipeline; workers cannot import them."""
    graph, code = env.job_graph("crash run")
    artifact = pack(code, by_value=by_value)
    return cluster.submit(
        SubmitRequest(graph=graph, artifact=artifact, config=dict(config), savepoint=savepoint)
    )


# --- a master of its own ------------------------------------------------------------------------------


class Command:
    """`unistream …` in a process of its own. `program`: a Python program instead."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        env: dict[str, str] | None = None,
        program: tuple[str, ...] = ("-m", "unistream.cli.main"),
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *program, *words],
            cwd=folder,
            env={**os.environ, "UNISTREAM_HOME": str(folder / "home"), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._family: dict[int, psutil.Process] = {}

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def family(self) -> list[psutil.Process]:
        """All processes that it has started so far."""
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self._family[child.pid] = child
        return list(self._family.values())

    def end(self, number: int) -> int:
        self.family()
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        self.out, self.err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode

    def assert_nothing_is_left(self) -> None:
        _, alive = psutil.wait_procs(self.family(), timeout=WAIT_S)
        assert not alive, f"left: {alive}"


@contextmanager
def commands_in(folder: Path) -> Iterator[Callable[..., Command]]:
    """Starts commands there; what they leave is killed at the end."""
    commands: list[Command] = []

    def start(*words: str, **more: Any) -> Command:
        commands.append(Command(folder, *words, **more))
        return commands[-1]

    yield start
    for command in commands:
        command.family()
        if command.process.poll() is None:
            command.process.kill()
            command.process.communicate()
        for child in command.family():
            if child.is_running():
                child.kill()
        for pipe in (command.process.stdout, command.process.stderr):
            if pipe is not None:  # of one that died, and whose test did not come to wait for it
                pipe.close()


def entry_of(folder: Path) -> dict[str, Any]:
    """How the one cluster that lives there is found. Killed ones could not take their entries back."""
    entries = [json.loads(file.read_text()) for file in (folder / "home" / "clusters").glob("*.json")]
    [found] = [entry for entry in entries if psutil.pid_exists(entry["pid"])]
    assert isinstance(found, dict)
    return found


def await_info(client: RestClient, job: JobId, condition: Callable[[JobInfo], bool]) -> JobInfo:
    poll = Poll(WAIT_S)
    while poll.next():
        info = client.info(job)
        if condition(info):
            return info
    raise AssertionError(f"did not come: {info}")


def job_of(line: str) -> JobId:
    """From the first line that `unistream run` prints."""
    words = line.split()
    assert words[0] == "job", line
    return JobId(words[1])


# --- snapshots ----------------------------------------------------------------------------------------


def manifest_of(directory: str | Path) -> Manifest:
    """Of a snapshot on this machine's disk."""
    return decode_manifest(Path(str(directory).removeprefix("file://"), "_metadata").read_bytes())


def in_flight_bytes(directory: str | Path) -> int:
    """Of the rows in flight that a snapshot holds."""
    tasks = [
        task for vertex in manifest_of(directory).vertices for task in vertex.subtasks if task is not None
    ]
    return sum(task.in_flight.file.size for task in tasks if task.in_flight is not None)


def snapshots_in(*folders: Path) -> list[tuple[Path, Manifest]]:
    """All complete ones below these, of whichever job, in the order in which they were taken.

    Those of one job are ordered by their numbers: both of a drain are begun at once, and either may have the
    earlier time.
    """
    found = [
        (path.parent, manifest_of(path.parent)) for folder in folders for path in walked(folder, "_metadata")
    ]
    begun: dict[JobId, int] = {}
    for _, one in found:
        begun[one.job] = min(one.timestamp_ms, begun.get(one.job, one.timestamp_ms))
    return sorted(found, key=lambda each: (begun[each[1].job], each[1].checkpoint_id))


class Lives:
    """A job in a cluster of its own, begun by hand; again from the newest snapshot that can go on.

    Args:
        folder: Where it runs; checkpoints and savepoints are in folders of these names there.
        pipeline: As `unistream run` takes it, of a module next to this one.
    """

    def __init__(
        self, folder: Path, command: Callable[..., Command], pipeline: str, config: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self._command = command
        directory = (folder / "checkpoints").as_uri()
        settings = {"execution.checkpointing.dir": directory, **config}
        options = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
        self._words = ("run", pipeline, "-t", "local", *options)

    @property
    def snapshots(self) -> list[tuple[Path, Manifest]]:
        """All complete ones, in the order in which they were taken."""
        return snapshots_in(self.folder / "checkpoints", self.folder / "savepoints")

    @property
    def newest(self) -> Path | None:
        """What the next life begins with: of a drain not its terminal savepoint."""
        going_on = [path for path, one in self.snapshots if one.kind is not SnapshotKind.TERMINATE]
        return going_on[-1] if going_on else None

    def start(self, snapshot: Path | None = None, *, parallelism: int = 1, **environment: str) -> Command:
        """The next life. `snapshot`: to begin with instead of the newest."""
        begin = snapshot or self.newest
        path = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(path)
        words = (*self._words, "-p", str(parallelism), *(("-s", str(begin)) if begin else ()))
        return self._command(*words, env=environment)

    @contextmanager
    def watch(self, life: Command) -> Iterator[tuple[RestClient, JobId]]:
        """A connection to the cluster of a life that has begun, and its job."""
        job = job_of(life.line())
        with RestClient(entry_of(self.folder)["url"], timeout_s=AWAY_S) as client:
            yield client, job

    def assert_killed(self, life: Command) -> None:
        """It dies, or has died, of its own SIGKILL, and takes its workers with it."""
        life.family()
        assert life.wait() == -signal.SIGKILL, life.err
        life.assert_nothing_is_left()


# --- tables -------------------------------------------------------------------------------------------


def keyed_windows(
    env: us.Environment,
    lake: Path,
    source: us.DatagenSource,
    *,
    disorder_ms: int = 500,
    windows_in: str = "default",
) -> None:
    """Rows ``id, key, value, at`` into a Delta table, and next to it what 10 s windows make of them.
    `windows_in`: the slot sharing group of the windows and their table."""
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(disorder_ms).with_timestamp_column("at")
    rows = env.from_source(source, watermarks, "rows").uid("rows")
    rows.key_by("key").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(
        n=us.count(), total=us.sum("value")
    ).uid("window").slot_sharing_group(windows_in).sink_to(us.DeltaSink(str(lake / "windows"))).uid("windows")
    rows.sink_to(us.DeltaSink(str(lake / "rows"))).uid("raw")


def assert_exact(lake: Path, rows: int) -> None:
    """Every row of `keyed_windows` once, every window once and right."""
    written = DeltaTable(str(lake / "rows")).to_pyarrow_table()
    windows = DeltaTable(str(lake / "windows")).to_pyarrow_table()
    assert sorted(written["id"].to_pylist()) == list(range(rows))
    with duckdb.connect() as connection:
        connection.register("rows_", written)
        connection.register("windows_", windows)
        differences = connection.sql(
            """
            WITH truth AS (
                SELECT key, floor(epoch_ms("at") / 10000)::BIGINT AS slot,
                    count(*) AS n, sum(value)::BIGINT AS total
                FROM rows_ GROUP BY ALL
            ), written AS (
                SELECT key, floor(epoch_ms(window_start) / 10000)::BIGINT AS slot, n, total FROM windows_
            )
            (FROM truth EXCEPT ALL FROM written) UNION ALL (FROM written EXCEPT ALL FROM truth)
            """
        ).fetchall()
        assert differences == []
