"""`make dev`: Dagster with the flights pipeline, a session cluster with a web UI, flights that keep coming.

    Kafka ◄── producer            eleven months of flights, then a day each 40 s, up to today
    session cluster               on Spark; jobs outlive the runs that start them
    dagster dev                   UI and daemon, with deployments/dagster/{dagster,workspace}.yaml

Everything ends with Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from rich.console import Console

from dagster_defs.demo import web_ui, what_next
from dagster_defs.demo.data import a_year_ago
from dagster_defs.demo.interrupts import Interrupts
from dagster_defs.demo.processes import POLL_S, WAIT_S, Child, DemoError
from dagster_defs.demo.run import DEPLOYMENT, PARTITIONS, TOPIC, environment
from unistream.base.errors import UnistreamError
from unistream.client.machine import home
from unistream.client.remote.rest_client import RestClient
from unistream.client.remote.tokens import TokensClient
from unistream.testing.devtools.kafka_tools import create_topic
from unistream.testing.devtools.stack import LocalStack

YEARS: Final = 2  # the first one comes up to today
YEAR_S: Final = 4 * 3_600.0
BACKLOG_MONTHS: Final = 11  # so that the last 90 days have some at once
MONTH_DAYS: Final = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 1 = something did not start or has ended, 130 = Ctrl-C."""
    parser = argparse.ArgumentParser(description="Dagster's UI, a session cluster, and data that flows.")
    parser.add_argument("--target", choices=["spark", "local"], default="spark", help="of the cluster")
    parser.add_argument("--port", type=int, default=3000, help="of Dagster's UI")
    parser.add_argument("--seconds-a-year", type=float, default=YEAR_S, help="how fast flights arrive")
    parser.add_argument("--since", type=date.fromisoformat, help="the first day; default: a year ago")
    parser.add_argument(
        "--backlog-months", type=int, default=BACKLOG_MONTHS, help="of flights that are there at the start"
    )
    options = parser.parse_args(arguments)
    console, interrupts = Console(), Interrupts()
    interrupts.install()
    stack = ExitStack()
    try:
        web_ui.require_free(options.port)
        work = Path(tempfile.mkdtemp(prefix="unistream-dev-"))
        cluster, ui, producer = start(options, work, stack, interrupts, console)
        while True:
            cluster.check_running("the session cluster")
            ui.check_running(web_ui.WHAT)
            producer.check_alive()  # it may have published all that there is
            time.sleep(POLL_S)
    except (DemoError, UnistreamError) as error:
        console.print(f"dev ends, and all that it has started: {error}", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("everything that was started has been stopped")
        return 130
    finally:
        with interrupts.shielded():  # a second Ctrl-C must not leave half of it running
            stack.close()


def start(
    options: argparse.Namespace, work: Path, stack: ExitStack, interrupts: Interrupts, console: Console
) -> tuple[Child, Child, Child]:
    """The cluster, Dagster and the producer.

    Raises:
        DemoError: something did not start.
    """
    console.print("starting a Kafka broker")
    local = stack.enter_context(LocalStack(work / "stack", ["kafka"]))
    bootstrap = local.address("kafka")
    create_topic(bootstrap, TOPIC, PARTITIONS)
    since = options.since or a_year_ago(datetime.now(UTC).date())
    settings = environment("remote", work, bootstrap, since)
    os.environ["UNISTREAM_HOME"] = settings["UNISTREAM_HOME"]  # where we look for the cluster
    shutil.copy(DEPLOYMENT / "workspace.yaml", work)

    def child(name: str, *module: str) -> Child:
        log = work / f"{name}.log"
        with interrupts.shielded():
            return stack.enter_context(Child(module, log=log, environment=settings))

    console.print(f"starting a session cluster on {options.target}")
    links = f"web.dagster-url={web_ui.url(options.port)}"
    words = ("cluster", "start", "-t", options.target, "--workdir", str(work / "cluster"), "-D", links)
    cluster = child("cluster", "unistream.cli", *words)
    url = _running(cluster).url
    console.print("starting Dagster's UI and daemon")
    ui = child("dagster", *web_ui.command(options.port, "-w", str(work / "workspace.yaml")))
    web_ui.wait_until_served(ui, options.port)
    pace = ("--seconds", str(options.seconds_a_year * YEARS), "--repeat", str(YEARS))
    backlog = since + timedelta(days=MONTH_DAYS * options.backlog_months)
    dates = ("--since", since.isoformat(), "--at-once-until", backlog.isoformat())
    producer = child("producer", "dagster_defs.demo.producer", "--bootstrap", bootstrap, *pace, *dates)
    console.print(f"Dagster UI {web_ui.url(options.port)}   cluster {url}   Kafka {bootstrap}   files {work}")
    with RestClient(url) as client:
        page = TokensClient(client).login_link(what_next.LINK_LASTS_MS)
    console.print(what_next.of_dev(web_ui.url(options.port), page, work), markup=False, soft_wrap=True)
    return cluster, ui, producer


def _running(cluster: Child) -> home.ClusterEntry:
    """Once it is there. Raises DemoError: it does not come."""
    deadline = time.monotonic() + WAIT_S
    while not (found := home.clusters()):
        cluster.check_alive()
        if time.monotonic() > deadline:
            raise DemoError(f"the session cluster did not come within {WAIT_S:.0f} s\n{cluster.tail()}")
        time.sleep(POLL_S)
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
