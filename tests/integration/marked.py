"""Processes that a command has started, known by what they inherit."""

from __future__ import annotations

import psutil


def marked(value: str) -> list[str]:
    """Command lines of the processes whose environment has it as TEST_MARK."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TEST_MARK") == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
