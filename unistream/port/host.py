"""Where TaskManagers run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from unistream.base.ids import TaskManagerId
from unistream.base.releases import SILENT
from unistream.model.credentials import Credentials
from unistream.model.resources import ANY_PROFILE, ResourceProfile

EXIT_OUT_OF_MEMORY: Final = 76  # of a worker that has exceeded its memory limit


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskManagerSpec:
    """Start parameters of a TaskManager process; JSON values only (it crosses into Spark).

    Attributes:
        master: Flight location of the JobManager.
        slots: Number of task slots.
        config: Configuration of the cluster as text.
        log_dir: Local folder for its log file ("" = stderr).
        avoid: Hosts that it must not run on: it exits at once on one of them.
        standalone: Started by a user: it outlives its parent and its master, and registers again.
        host: Name of its machine (or container); "" = the machine's own host name.
        purpose: For people: the job that wants it, and the job's vertices; "" = not known.
        credentials: What it shows to processes on other hosts; None: all are on this one.
        version, python: What is installed where it was requested.
    """

    id: TaskManagerId
    master: str
    slots: int
    config: dict[str, str] = field(default_factory=dict)
    log_dir: str = ""
    avoid: tuple[str, ...] = ()
    standalone: bool = False
    host: str = ""
    purpose: str = ""
    credentials: Credentials | None = None
    version: str = SILENT
    python: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTraits:
    """What a host can do.

    Attributes:
        active: It starts workers on request; otherwise users start them.
        largest: The largest slot of its workers; an unset resource: no limit.
        many_machines: Workers may run on several machines, so that one can be avoided.
    """

    active: bool = True
    largest: ResourceProfile = ANY_PROFILE
    many_machines: bool = False


def worker_log_name(task_manager: TaskManagerId) -> str:
    """The name of its log file in the folder of logs, the same for every host."""
    return f"taskmanager-{task_manager}.log"


class LostListener(Protocol):
    """Called once, from any thread, when a worker has ended for any reason.

    `host`: where it ran, if known, also for workers that never registered. `hopeless`: it could not start
    for a permanent reason, such as an interpreter without unistream.
    """

    def __call__(
        self, task_manager: TaskManagerId, reason: str, host: str = "", hopeless: bool = False, /
    ) -> None: ...


class WorkerHost(Protocol):
    """Starts and stops TaskManager processes. A TaskManagerId is never used twice."""

    def start(self, spec: TaskManagerSpec) -> None:
        """Returns at once; the process registers with the master by itself."""

    def stop(self, task_manager: TaskManagerId) -> None:
        """Ends it (the backstop after `ReleaseTaskManager`); unknown ids are fine."""

    def close(self) -> None:
        """Ends all, waits for them, and leaves no process behind."""


class LeavingListener(Protocol):
    """Called once, from any thread, when a worker's machine is about to go; `reason` is for people."""

    def __call__(self, task_manager: TaskManagerId, reason: str, /) -> None: ...


@runtime_checkable
class SharedHost(WorkerHost, Protocol):
    """A host on which others decide, too, such as a cluster manager: it has more to say than that a worker
    has ended."""

    def notes(self) -> list[str]:
        """What people should know of it; nothing if all is well. Returns at once."""

    def on_leaving(self, listener: LeavingListener) -> None:
        """Calls `listener` from now on."""

    def given_up(self, task_manager: TaskManagerId) -> None:
        """The worker is released, or was lost: as long as its process is not known to have ended, other
        machines are preferred to that one, of which perhaps nothing is left. Returns at once."""
