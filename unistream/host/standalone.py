"""Workers that come by themselves: somebody starts them with ``unistream taskmanager start``."""

from __future__ import annotations

from unistream.base.errors import ConfigError
from unistream.base.ids import TaskManagerId
from unistream.port.host import LostListener, TaskManagerSpec


class StandaloneHost:
    """Starts and ends nothing: whoever started a worker is told by its exit code what became of it, and
    the master hears of it by heartbeats alone.

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
        """Nothing: a worker that was released, or given up, ends by itself."""

    def close(self) -> None:
        """Nothing: workers outlive this master and wait for the next."""
