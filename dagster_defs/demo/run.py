"""The steps of the demo, in order; each says what it did, and everything started is ended at the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from dagster_defs.demo import web_ui, what_next
from dagster_defs.demo.data import a_year_ago, airlines_csv
from dagster_defs.demo.interrupts import Interrupts
from dagster_defs.demo.lag import Lag
from dagster_defs.demo.processes import POLL_S, WAIT_S, Child, DemoError
from dagster_defs.demo.report import ASSETS, DemoReport, Figures, judge, print_figures
from unistream.client.machine import home
from unistream.client.remote.rest_client import RestClient
from unistream.client.remote.tokens import TokensClient
from unistream.model.job_info import JobInfo
from unistream.testing.devtools.kafka_tools import create_topic
from unistream.testing.devtools.stack import LocalStack

DEPLOYMENT: Final = Path(__file__).parents[2] / "deployments" / "dagster"
TOPIC: Final = "flights"
GROUP: Final = "unistream-flights"  # the job reports its positions under it after each checkpoint
PARTITIONS: Final = 4
FLIGHTS_A_YEAR: Final = 336_776
CHECKPOINTS_BEFORE_KILL: Final = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What `make demo` takes; `seconds`: how long the producer takes, `port`: of the UI that is kept."""

    target: str
    repeat: int
    seconds: float
    keep: bool
    port: int = 3000

    @property
    def events(self) -> int:
        return FLIGHTS_A_YEAR * self.repeat


def run(options: DemoOptions, console: Console, interrupts: Interrupts) -> DemoReport:
    """The whole demo.

    Raises:
        DemoError: a step failed or took too long; nothing is left running.
    """
    if options.keep:
        web_ui.require_free(options.port)
    work = Path(tempfile.mkdtemp(prefix="unistream-demo-"))
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    stack = ExitStack()
    try:
        with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
            demo = _Demo(options, work, stack, progress, interrupts)
            report, figures = demo.run()
        print_figures(console, report, figures)
        if options.keep:
            demo.keep(console)
    finally:
        with interrupts.shielded():  # a second Ctrl-C must not leave half of it running
            stack.close()
    return report


class _Demo:
    """What the steps share: folders, child processes, and the job once there is one."""

    def __init__(
        self,
        options: DemoOptions,
        work: Path,
        stack: ExitStack,
        progress: Progress,
        interrupts: Interrupts,
    ) -> None:
        self._options = options
        self._interrupts = interrupts
        self._work = work
        self._stack = stack
        self._progress = progress
        self._started = time.monotonic()
        self._since = a_year_ago(datetime.now(UTC).date())
        self._bar = progress.add_task("flights in checkpoints", total=options.events)

    def run(self) -> tuple[DemoReport, Figures]:
        self._start_kafka()
        self._materialise()
        self._find_job()
        up_s = time.monotonic() - self._started
        self._publish()
        recovery_s = self._kill_worker()
        self._consume()
        self._drain()
        self._say("comparing with the truth computed from the files")
        report, metadata = judge(
            self._work / "lake",
            Path(self._environment["DAGSTER_HOME"]),
            repeat=self._options.repeat,
            events=self._options.events,
            since=self._since,
        )
        total_s = time.monotonic() - self._started
        figures = Figures(
            target=self._options.target, up_s=up_s, recovery_s=recovery_s, total_s=total_s, asset=metadata
        )
        return report, figures

    def _say(self, text: str) -> None:
        """With the time, so that a log without a terminal can be read too."""
        elapsed = time.monotonic() - self._started
        self._progress.console.print(f"[{elapsed:5.1f} s] {text}", highlight=False, markup=False)

    # --- steps, in order ------------------------------------------------------------------------

    def _start_kafka(self) -> None:
        self._say("starting a Kafka broker")
        stack = self._stack.enter_context(LocalStack(self._work / "stack", ["kafka"]))
        self._bootstrap = stack.address("kafka")
        create_topic(self._bootstrap, TOPIC, PARTITIONS)
        self._lag = self._stack.enter_context(closing(Lag(self._bootstrap, TOPIC, GROUP)))

    def _materialise(self) -> None:
        self._say(f"materialising the Dagster assets {' and '.join(ASSETS)} on {self._options.target}")
        self._environment = environment(self._options.target, self._work, self._bootstrap, self._since)
        os.environ["UNISTREAM_HOME"] = self._environment["UNISTREAM_HOME"]  # where we look for the cluster
        command = ["dagster", "asset", "materialize", "--select", ",".join(ASSETS)]
        self._dagster = self._child(
            [*command, "-m", "dagster_defs.definitions"], "dagster", self._environment
        )

    def _find_job(self) -> None:
        entry = self._wait_for("the job's cluster", lambda: next(iter(home.clusters()), None))
        self._cluster = self._stack.enter_context(RestClient(entry.url))
        summary = self._wait_for("the job", lambda: next(iter(self._cluster.jobs()), None))
        self._job = summary.job
        self._wait_for_job("the job to run", lambda info: info.state == "RUNNING")
        link = TokensClient(self._cluster).login_link(what_next.LINK_LASTS_MS)
        self._say(f"job {self._job} is running; its page, for one browser: {link}")
        self._say(f"in another terminal: {what_next.command(self._work, 'list')}")

    def _publish(self) -> None:
        self._say(f"publishing {self._options.events:,} flights in about {self._options.seconds:.0f} s")
        module = ["dagster_defs.demo.producer", "--bootstrap", self._bootstrap, "--topic", TOPIC]
        pace = ["--seconds", str(self._options.seconds), "--repeat", str(self._options.repeat)]
        since = ["--since", self._since.isoformat()]
        self._producer = self._child([*module, *pace, *since], "producer")

    def _kill_worker(self) -> float:
        """SIGKILL to one TaskManager after the second checkpoint; seconds until the job runs again."""
        self._wait_for("some flights to be in a checkpoint", lambda: self._lag.consumed() > 0)
        first = self._cluster.info(self._job).checkpoints_completed
        before = self._wait_for_job(
            "the second checkpoint with flights",
            lambda info: info.checkpoints_completed >= first + CHECKPOINTS_BEFORE_KILL - 1,
        )
        victim = before.task_managers[-1]
        if victim.pid is None:
            raise DemoError(f"worker {victim.id} has told no process id")
        self._say(f"killing worker {victim.id} (process {victim.pid}) with SIGKILL")
        killed = time.monotonic()
        os.kill(victim.pid, signal.SIGKILL)
        self._wait_for_job(
            "the job to run again", lambda info: info.restarts > before.restarts and info.state == "RUNNING"
        )
        recovery_s = time.monotonic() - killed
        self._say(f"running again after {recovery_s:.1f} s, from checkpoint {before.latest_checkpoint}")
        return recovery_s

    def _consume(self) -> None:
        events = self._options.events
        self._wait_for(
            "the producer to end", lambda: self._producer.exit_code == 0, WAIT_S + self._options.seconds
        )
        published = self._lag.published()
        if published != events:
            raise DemoError(f"the topic holds {published} records, {events} were to be published")
        self._wait_for("the topic to be consumed", lambda: self._lag.consumed() == events)
        self._say("the topic is consumed")

    def _drain(self) -> None:
        self._say("unistream stop --drain")
        stop = ["unistream.cli", "stop", self._job, "--drain", "--json"]
        self._child(stop, "stop", self._environment).wait(WAIT_S)
        self._dagster.wait(WAIT_S)

    def keep(self, console: Console) -> None:
        """Leaves the stack and the Dagster UI running until Ctrl-C."""
        port = self._options.port
        command = web_ui.command(port, "-m", "dagster_defs.definitions")
        ui = self._child(command, "dagster-ui", self._environment)
        web_ui.wait_until_served(ui, port)
        console.print(f"Dagster UI {web_ui.url(port)}   Kafka {self._bootstrap}   files {self._work}")
        console.print(what_next.of_the_demo(web_ui.url(port), self._work), markup=False, soft_wrap=True)
        while True:
            ui.check_running(web_ui.WHAT)
            time.sleep(POLL_S)

    # --- waiting --------------------------------------------------------------------------------

    def _child(self, module: list[str], name: str, environment: dict[str, str] | None = None) -> Child:
        log = self._work / f"{name}.log"
        with self._interrupts.shielded():
            return self._stack.enter_context(Child(module, log=log, environment=environment))

    def _wait_for_job(self, what: str, condition: Callable[[JobInfo], bool]) -> JobInfo:
        def ask() -> JobInfo | None:
            info = self._cluster.info(self._job)
            if info.is_terminal:
                raise DemoError(f"job {info.job} is {info.state}: {info.failure}")
            return info if condition(info) else None

        return self._wait_for(what, ask)

    def _wait_for(self, what: str, ask: Callable[[], T | None], timeout_s: float = WAIT_S) -> T:
        """The first answer that is not None or False.

        Raises:
            DemoError: none within the time, or the run or the producer has failed meanwhile.
        """
        deadline = time.monotonic() + timeout_s
        while not (answer := ask()):
            self._dagster.check_alive()
            if self._dagster.exit_code == 0:
                raise DemoError(f"the run ended while waiting for {what}\n{self._dagster.tail()}")
            if hasattr(self, "_producer"):
                self._producer.check_alive()
                self._progress.update(self._bar, completed=self._lag.consumed())
            if time.monotonic() > deadline:
                raise DemoError(f"{what} did not come within {timeout_s:.0f} s\n{self._dagster.tail()}")
            time.sleep(POLL_S)
        return answer


def environment(target: str, work: Path, bootstrap: str, since: date) -> dict[str, str]:
    """What Dagster's processes and the command line need to know, and folders for their files."""
    home = work / "dagster"
    home.mkdir()
    shutil.copy(DEPLOYMENT / "dagster.yaml", home)
    config = {
        "parallelism.default": "2",
        "execution.checkpointing.interval": "2 s",
        "execution.checkpointing.dir": (work / "checkpoints").as_uri(),
        "execution.checkpointing.savepoint-dir": (work / "savepoints").as_uri(),
    }
    return {
        "DAGSTER_HOME": str(home),
        "UNISTREAM_HOME": str(work / "unistream"),
        "UNISTREAM_TARGET": target,
        "UNISTREAM_CONFIG": json.dumps(config),
        "FLIGHTS_BOOTSTRAP": bootstrap,
        "FLIGHTS_AIRLINES": airlines_csv(),
        "FLIGHTS_LAKE": str(work / "lake"),
        "FLIGHTS_SINCE": since.isoformat(),
    }
