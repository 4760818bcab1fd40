"""What all jobs of a master share: slots of workers, messages to them, and the record of what happened.

Decides which order writes and messages have; which job gets a slot is decided by the machine of
`core/resource`. `cluster_services` are the adapters that the program gives it, `ports` what else a shell
needs. May import `shown`, `store`, `loop`, `core`, `port`, `model`, `base`. Start with `cluster_services`.
"""

from __future__ import annotations

from unistream.master.service.cluster_services import ClusterServices, create_resource_machine, master_ports
from unistream.master.service.ports import JobDecisions, MasterPorts, Messages, Records
from unistream.master.service.resource_manager import (
    HostFactory,
    ResourceManager,
    SlotDecisions,
    WorkerSettings,
)
from unistream.master.service.senders import OnOutcome, OutgoingMessage, SendFailure, outcome_of, unanswered

__all__ = [
    "ClusterServices",
    "HostFactory",
    "JobDecisions",
    "MasterPorts",
    "Messages",
    "OnOutcome",
    "OutgoingMessage",
    "Records",
    "ResourceManager",
    "SendFailure",
    "SlotDecisions",
    "WorkerSettings",
    "create_resource_machine",
    "master_ports",
    "outcome_of",
    "unanswered",
]
