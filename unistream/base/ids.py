"""Identities as distinct types, so that one cannot be passed for another."""

from __future__ import annotations

import hashlib
from typing import Final, NewType

import msgspec

JobId = NewType("JobId", str)
"""32 hex digits, as Flink's JobID."""
LineageId = NewType("LineageId", str)
"""The id of a line of jobs, each of which restores from a snapshot of the one before it (`port.line`); made
once at a fresh start and carried by every checkpoint. Part of each commit's identity, so that a fresh start
never collides."""
VertexId = NewType("VertexId", str)
"""32 hex digits, derived from the uid of the head operator."""
EdgeId = NewType("EdgeId", str)
OperatorUid = NewType("OperatorUid", str)
TaskManagerId = NewType("TaskManagerId", str)
AllocationId = NewType("AllocationId", str)
CheckpointId = NewType("CheckpointId", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ClusterId = NewType("ClusterId", str)
"""32 hex digits, the same for all masters that lead a cluster one after the other."""
NO_CLUSTER: Final = ClusterId("")


def job_of_request(request_id: str) -> JobId:
    """The job that a submission with this request id starts, on every cluster."""
    return JobId(hashlib.sha256(f"unistream-request:{request_id}".encode()).hexdigest()[:32])


class SubtaskId(msgspec.Struct, frozen=True, order=True):
    """One parallel instance of a vertex; prints as ``vertex#index``."""

    vertex: VertexId
    index: int

    def __str__(self) -> str:
        return f"{self.vertex}#{self.index}"


class AttemptId(msgspec.Struct, frozen=True, order=True):
    """One execution attempt of a subtask. Messages of an older attempt are ignored (fencing)."""

    job: JobId
    vertex: VertexId
    index: int
    attempt: int

    @property
    def subtask(self) -> SubtaskId:
        return SubtaskId(self.vertex, self.index)

    def __str__(self) -> str:
        return f"{self.job}/{self.vertex}#{self.index}.{self.attempt}"


class PartitionId(msgspec.Struct, frozen=True, order=True):
    """What one subtask produces for one edge, whichever attempt of it; prints as ``vertex#index>edge``."""

    producer: SubtaskId
    edge: EdgeId

    def __str__(self) -> str:
        return f"{self.producer}>{self.edge}"
