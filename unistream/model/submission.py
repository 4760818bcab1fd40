"""What a client submits: a job to run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import structs

from unistream.base.config import DAGSTER_ASSETS, names_cluster
from unistream.base.secrets import redacted_repr
from unistream.model.graph import JobGraph, without_places


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A job to run.

    Attributes:
        artifact: The user's code; opaque here, opened only by a worker of this job.
        config: Overrides the graph's own configuration.
        savepoint: Directory of a checkpoint or savepoint to start from.
        request_id: Chosen by the client: sending the same again is one job.
        allow_non_restored: State without an operator is dropped instead of refused.
        first_checkpoint_pause_ms: No periodic checkpoint is taken before all tasks have run that long; after
            a restart the same again, until one is complete.
        given: Options of the command line, which are in `config`, too: another version of the job keeps them.
        alone: It is refused if a job that has not ended, of this cluster or of one with the same database,
            writes one of the same outputs, with a sink of the same uid. Jobs that a new leader is about to
            recover are not asked.
        alone_in_line: The same of jobs of the line that its savepoint continues: what people start asks for
            it. Without it two may run, and the line of the table decides which one commits.
        pipeline: What the job was made of, for a replay of its dead letters; opaque as the artifact, and
            opened only by a process of its own. Empty: it has none, or its client has not sent it.
    """

    graph: JobGraph
    artifact: bytes
    config: dict[str, str] = {}
    savepoint: str | None = None
    request_id: str | None = None
    allow_non_restored: bool = False
    first_checkpoint_pause_ms: int = 0
    given: dict[str, str] = {}
    alone: bool = False
    alone_in_line: bool = False
    pipeline: bytes = b""

    __repr__ = redacted_repr


def digest_of(request: SubmitRequest) -> str:
    """SHA-256 of graph, configuration and code: two submissions with the same one run the same, in whichever
    cluster. `pipeline` is in the code already. (Sets in objects of the user may be pickled in another order
    by another process, which makes another digest.)"""
    # What sources read is in their options. Of a graph that an older version has made, `reads` says nothing.
    graph = structs.replace(without_places(request.graph), config=of_job(request.graph.config), reads={})
    digest = hashlib.sha256(msgspec.json.encode(graph, order="sorted"))
    digest.update(msgspec.json.encode(of_job(request.config), order="sorted"))
    digest.update(hashlib.sha256(request.artifact).digest())
    return digest.hexdigest()


def of_job(config: Mapping[str, str]) -> dict[str, str]:
    """The options that say how a job runs, without all others."""
    return {
        key: value for key, value in config.items() if not names_cluster(key) and key != DAGSTER_ASSETS.key
    }
