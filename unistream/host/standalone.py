"""Workers that users start, with ``unistream taskmanager start``."""

from __future__ import annotations

from unistream.base.errors import ConfigError
from unistream.base.ids import TaskManagerId
from unistream.port.host import LostListener, TaskManagerSpec


class StandaloneHost:
    """Starts and ends nothing: the user who started a worker gets its exit code, and the master detects its
    loss by missing heartbeats.

    Args:
        on_lost: Never called.
    """

    def __init__(self, on_lost: LostListener) -> None:
        self._on_lost = on_lost

    def start(self, spec: TaskManagerSpec) -> None:
        """Raises ConfigError: it cannot."""
        raise ConfigError(
            f"{spec.id}: a standalone cluster starts no workers; "
            "run 'unistream taskmanager start --jobmanager HOST:PORT'"
        )

    def stop(self, task_manager: TaskManagerId) -> None:
        """Nothing: a released or lost worker ends by itself."""

    def close(self) -> None:
        """Nothing: workers outlive this master and wait for the next one."""
