"""The TaskManager process: its slots, its tasks, its lease and its reports to the master.

`entry_point` starts it on the ports that `services` makes, `task_manager` performs the master's messages one
after the other, `slot_table` guards the slots, `lease` ends the process when the master is silent, `reports`
sends what happened. May import every other room of the worker. Start with `task_manager`, then `ports`.
"""

from __future__ import annotations

from unistream.worker.process.ending import Ending, Exit
from unistream.worker.process.entry_point import RELEASED, main, run_standalone, run_task_manager
from unistream.worker.process.ports import MasterConnection, Member, WorkerPorts, WorkerStores
from unistream.worker.process.services import Services, default_services, worker_ports
from unistream.worker.process.task_manager import TaskManager
