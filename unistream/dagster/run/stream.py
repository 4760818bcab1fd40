"""Which job is the stream of some assets: the one that writes their tables.

Two code locations may have steps of one name, and sinks of one uid (those of a guide), on one cluster. So the
name of a job does not say whose it is; the tables do, by which runs find the job that they continue, too. An
asset that was made from its pipeline knows its table. Of one that does not (`sink_asset` without the URI),
and of a job of which nothing but its name is known, the name has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import dagster as dg

from unistream.base.config import Configuration
from unistream.base.ids import JobId, OperatorUid
from unistream.client.job.lookup import find_job, find_writer
from unistream.client.remote.rest_client import RestJobClient
from unistream.dagster.run.metadata import SINK_METADATA
from unistream.dagster.run.translator import URI
from unistream.model.job_info import JobInfo
from unistream.port.metadata import OutboxRecord

Writes: TypeAlias = Mapping[OperatorUid, tuple[str, ...]]
"""URIs by uid of the sinks of a job; empty: not known."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the sink of an asset writes. `job`: name of the stream's job; `uri`: of the table; "": unknown."""

    job: str
    uid: str
    uri: str

    @classmethod
    def of(cls, spec: dg.AssetSpec, job: str) -> Written:
        return cls(job, str(spec.metadata[SINK_METADATA]), str(spec.metadata.get(URI, "")))

    @property
    def identity(self) -> tuple[str, str]:
        """Two assets with the same one are the same table."""
        return (self.uid, self.uri or f"job {self.job}")

    def is_of(self, job_name: str, writes: Writes | None) -> bool:
        """Whether a job writes it. `writes` None: not known."""
        if not self.uri or not writes:
            return job_name == self.job
        return self.uri in writes.get(OperatorUid(self.uid), ())


@dataclass(frozen=True, slots=True)
class AssetStream:
    """The job that writes some assets. `name`: as it is submitted by the runs of these assets."""

    name: str
    assets: tuple[Written, ...]

    @classmethod
    def of(cls, assets: dg.AssetsDefinition, job_name: str | None = None) -> AssetStream:
        """`job_name`: None: that of the step."""
        name = job_name or assets.op.name
        specs = [spec for spec in assets.specs if SINK_METADATA in spec.metadata]
        return cls(name, tuple(Written.of(spec, name) for spec in specs))

    @property
    def knows_tables(self) -> bool:
        return any(asset.uri for asset in self.assets)

    def is_written_by(self, job_name: str, writes: Writes | None) -> bool:
        """Whether a job is this one. `writes` None: not known."""
        if not self.knows_tables:
            return job_name == self.name
        return any(asset.is_of(job_name, writes) for asset in self.assets)

    def find(self, config: Configuration) -> RestJobClient:
        """The job, running or ended. Raises as `find_job`."""
        if not self.knows_tables:
            return find_job(config, self.name)
        return find_writer(
            config,
            self.name,
            self.is_written_by,
            ", ".join(asset.uri for asset in self.assets if asset.uri),
        )


class CommittedAssets:
    """Which asset a commit of the outbox is of.

    Args:
        assets: With what their sinks write.
        ask: A job as it is known now; None: nobody knows it. Each is asked for once.
    """

    def __init__(self, assets: Mapping[Written, dg.AssetKey], ask: Callable[[JobId], JobInfo | None]) -> None:
        self._of_uid: dict[str, list[tuple[Written, dg.AssetKey]]] = {}
        for written, key in assets.items():
            self._of_uid.setdefault(written.uid, []).append((written, key))
        self._ask = ask
        self._writes: dict[JobId, Writes | None] = {}

    def asset(self, record: OutboxRecord) -> dg.AssetKey | None:
        """None: of another one. Raises what `ask` raises."""
        candidates = self._of_uid.get(record.commit.sink_uid, [])
        if not candidates:
            return None
        writes = self._written(record.commit.job) if any(one.uri for one, _ in candidates) else None
        return next((key for one, key in candidates if one.is_of(record.job_name, writes)), None)

    def _written(self, job: JobId) -> Writes | None:
        if job not in self._writes:
            info = self._ask(job)
            self._writes[job] = None if info is None else info.writes
        return self._writes[job]
