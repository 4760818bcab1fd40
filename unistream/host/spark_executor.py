"""What runs in a task of Spark: it becomes a worker, if one of this cluster can run on its executor at all.
The Python there may be another one than the JobManager's, and its host another host."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from pyspark import TaskContext

from unistream.base import durable_files
from unistream.base.allocator import choose_allocator
from unistream.base.config import JOBMANAGER_ADDRESS, JOBMANAGER_BIND, Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.releases import is_together, series
from unistream.core.memory import thread_environment
from unistream.host.child import die_with_parent
from unistream.host.claims import claim
from unistream.host.executor import executor_host
from unistream.host.logs import log_path
from unistream.net.address import UNIX_SCHEME, is_of_peer
from unistream.port.host import TaskManagerSpec

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s [%(threadName)s] %(message)s"
UNFIT: Final = "no worker of this cluster can run on"
"""Begins what is said then; `spark_errors` looks for it."""


def check_version(host: str, wanted: str) -> None:
    """Raises ConfigError: this executor has unistream in a release that is not the JobManager's, `wanted`."""
    from unistream import __version__

    if not is_together(__version__, wanted):
        raise ConfigError(
            f"{UNFIT} {host}: its Python, {sys.executable}, has unistream {__version__}, and the JobManager "
            f"has {wanted}: install unistream {series(wanted)}.* for it, or set PYSPARK_PYTHON to another"
        )


def check_reach(host: str, master: str) -> None:
    """Raises ConfigError: this executor is on another host than the JobManager at `master`, a Flight location
    that only its own host reaches."""
    path = master.removeprefix(UNIX_SCHEME)
    if path != master and not is_of_peer(path):
        raise ConfigError(
            f"{UNFIT} {host}: the JobManager listens for processes of its own host and user alone; start "
            f"the cluster with {JOBMANAGER_BIND.key} (0.0.0.0) and {JOBMANAGER_ADDRESS.key}, the address by "
            "which executors reach it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """The input of a Spark task, as JSON. `claim_folder` "": there is nothing to claim; `version`: of the
    JobManager's unistream."""

    spec: TaskManagerSpec
    claim_folder: str
    version: str = ""


class _OrderHead(msgspec.Struct):
    """The part of a `WorkerOrder` that every version has."""

    claim_folder: str
    version: str = ""


def run_in_task(orders: Iterator[bytes]) -> tuple[()]:
    """Runs in the Python worker of a Spark task: becomes the TaskManager until it is released. There are no
    results."""
    task = TaskContext.get()
    if task is not None and task.attemptNumber() > 0:
        return ()  # an id is used only once; the ResourceManager requests a new worker
    text = next(orders)
    head = msgspec.json.decode(text, type=_OrderHead)
    if not head.claim_folder:
        check_version(executor_host(), head.version)  # before more is read, which another one may not know
    order = msgspec.json.decode(text, type=WorkerOrder)
    spec = order.spec
    if not order.claim_folder:
        spec = replace(spec, host=executor_host())
        check_reach(spec.host, spec.master)
    os.environ.update(thread_environment(Configuration(spec.config)))
    choose_allocator()
    from unistream.worker.process import (
        RELEASED,
        run_task_manager,  # loads numpy and Arrow
    )

    die_with_parent(os.getppid())
    if order.claim_folder and not claim(order.claim_folder):
        return ()
    path = log_path(spec)
    if path is not None and order.claim_folder:
        durable_files.make_folders(path.parent)
    if path is not None and path.parent.is_dir():  # else this is another machine: its executor has a log
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(log, 1)  # this process serves no other task afterwards
        os.dup2(log, 2)
        os.close(log)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=LOG_FORMAT)
    code = run_task_manager(spec)
    if code != RELEASED:
        raise Unreachable(f"the TaskManager ended with code {code}; its log says why")
    return ()
