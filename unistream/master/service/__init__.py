"""What all jobs of a master share: slots of workers, messages to them, and the record of what happened.

Decides which order writes and messages have; which job gets a slot is decided by the machine of
`core/resource`. `cluster_services` are the adapters that the program gives it, `ports` what else a shell
needs. May import `shown`, `store`, `loop`, `core`, `port`, `model`, `base`. Start with `cluster_services`.
"""

from __future__ import annotations

from unistream.master.service.cluster_services import ClusterServices, master_ports
from unistream.master.service.ports import Machine, MasterPorts, Messages, Records
from unistream.master.service.resource_manager import HostFactory, ResourceManager, WorkerSettings
from unistream.master.service.senders import Failed, OutgoingMessage

__all__ = [
    "ClusterServices",
    "Failed",
    "HostFactory",
    "Machine",
    "MasterPorts",
    "Messages",
    "OutgoingMessage",
    "Records",
    "ResourceManager",
    "WorkerSettings",
    "master_ports",
]
