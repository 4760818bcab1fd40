"""Where a worker's output goes, the same for every host."""

from __future__ import annotations

from pathlib import Path

from unistream.port.host import TaskManagerSpec, worker_log_name


def log_path(spec: TaskManagerSpec) -> Path | None:
    """The log file of a worker, or None: stderr."""
    return Path(spec.log_dir) / worker_log_name(spec.id) if spec.log_dir else None
