"""The TaskManager process: its slots, its tasks, its lease and its reports to the master.

`main` starts it, `task_manager` performs the master's messages one after the other, `slot_table` guards
the slots, `lease` ends the process when the master is silent, `reports` sends what happened. May import
every other room of the worker. Start with `task_manager`.
"""

from __future__ import annotations

from unistream.worker.process.entry_point import (
    RELEASED,
    default_services,
    main,
    run_standalone,
    run_task_manager,
)
from unistream.worker.process.lease import Ending
from unistream.worker.process.limits import EXIT_OUT_OF_MEMORY
from unistream.worker.process.task_control import TaskControl
from unistream.worker.process.task_manager import Services, TaskManager

__all__ = [
    "EXIT_OUT_OF_MEMORY",
    "RELEASED",
    "Ending",
    "Services",
    "TaskControl",
    "TaskManager",
    "default_services",
    "main",
    "run_standalone",
    "run_task_manager",
]
