"""Where a worker's output goes, the same for every host."""

from __future__ import annotations

from pathlib import Path

from unistream.port.host import TaskManagerSpec


def log_path(spec: TaskManagerSpec) -> Path | None:
    """The log file of a worker, or None: stderr."""
    return Path(spec.log_dir) / f"taskmanager-{spec.id}.log" if spec.log_dir else None
