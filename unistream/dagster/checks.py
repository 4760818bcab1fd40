"""Asset checks of running streams: does the job run, how old is its newest checkpoint, how often did it
restart, and how many rows were late. Judged from what the job shows; no rows are read.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from unistream.base.config.parsing import parse_duration_ms
from unistream.base.errors import ClusterEnded, NotFound, UnistreamError
from unistream.client.lookup import find_job
from unistream.client.submission import NothingRuns
from unistream.dagster.resource import UnistreamResource
from unistream.master.job_info import JobInfo
from unistream.model.checkpoint_figures import CheckpointFigures

RUNS: Final = "runs"
CHECKPOINT_AGE: Final = "checkpoint_age"
RESTARTS: Final = "restarts"
LATE_ROWS: Final = "late_rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a healthy stream stays within; None: not checked.

    Attributes:
        checkpoint_age_ms: Since the start of its newest complete checkpoint, or of the job.
        restarts: How often it has restarted.
        late_rows: Rows dropped behind the watermark.
    """

    checkpoint_age_ms: int | None
    restarts: int | None
    late_rows: int | None

    @property
    def names(self) -> list[str]:
        """Of the checks."""
        limits = {CHECKPOINT_AGE: self.checkpoint_age_ms, RESTARTS: self.restarts, LATE_ROWS: self.late_rows}
        return [RUNS, *(name for name, limit in limits.items() if limit is not None)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one check."""

    passed: bool
    text: str
    metadata: Mapping[str, Any]


def judged(
    info: JobInfo, newest: CheckpointFigures | None, limits: Limits, now_ms: int
) -> dict[str, Verdict]:
    """All checks of a job, by name.

    Args:
        info: The job.
        newest: Its newest complete checkpoint or savepoint; None: there is none.
        limits: Of the checks.
        now_ms: Wall clock.
    """
    runs = info.state == "RUNNING"
    found = {RUNS: Verdict(runs, f"job {info.job} is {info.state}", {"unistream/job_id": str(info.job)})}
    if limits.checkpoint_age_ms is not None:
        since_ms = info.submitted_ms if newest is None else newest.timestamp_ms
        age_s = max(0, now_ms - since_ms) / 1000
        what = "there is no complete checkpoint" if newest is None else f"checkpoint {newest.checkpoint_id}"
        text = f"{what}, {age_s:.0f} s ago" if newest else f"{what}, {age_s:.0f} s after the submission"
        found[CHECKPOINT_AGE] = Verdict(age_s * 1000 <= limits.checkpoint_age_ms, text, {"age_s": age_s})
    if limits.restarts is not None:
        text = f"{info.restarts} restarts, allowed {limits.restarts}"
        found[RESTARTS] = Verdict(info.restarts <= limits.restarts, text, {"restarts": info.restarts})
    if limits.late_rows is not None:
        late = sum(info.late_rows.values())
        metadata = {"late_rows": late, "by_operator": dg.MetadataValue.json(info.late_rows)}
        text = f"{late} late rows, allowed {limits.late_rows}"
        found[LATE_ROWS] = Verdict(late <= limits.late_rows, text, metadata)
    return found


def build_stream_checks(
    assets: dg.AssetsDefinition,
    *,
    max_checkpoint_age: str | None = "10 min",
    max_restarts: int | None = None,
    max_late_rows: int | None = None,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    job_name: str | None = None,
    resource: str = "unistream",
    clock: Callable[[], float] = time.time,
) -> dg.AssetChecksDefinition:
    """Checks of the job that writes `assets`, of each asset: `runs`, and one for each limit that is given.

    They are evaluated when Dagster runs them: by a schedule over `dg.AssetSelection.checks(...)`, an
    automation condition, or the button.

    Args:
        assets: Made by `unistream_assets`.
        max_checkpoint_age: Such as "10 min": since the start of the newest complete checkpoint.
        max_restarts: Since the job was submitted.
        max_late_rows: Dropped behind the watermark since the job was submitted.
        severity: Of a check that fails.
        job_name: Of the job, if `UnistreamResource.run` was given another one than that of the step.
        resource: Key of the `UnistreamResource` that knows the cluster.
        clock: Seconds since the epoch.

    Raises:
        ConfigError: `max_checkpoint_age` is no duration.
    """
    limits = Limits(
        checkpoint_age_ms=None if max_checkpoint_age is None else parse_duration_ms(max_checkpoint_age),
        restarts=max_restarts,
        late_rows=max_late_rows,
    )
    step = assets.op.name
    specs = [dg.AssetCheckSpec(name, asset=key) for key in sorted(assets.keys) for name in limits.names]

    @dg.multi_asset_check(name=f"{step}_checks", specs=specs, required_resource_keys={resource})
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        unistream: UnistreamResource = getattr(context.resources, resource)
        verdicts = _verdicts(unistream, job_name or step, limits, int(clock() * 1000))
        yield from _results(specs, verdicts, severity)

    return checks


def _verdicts(unistream: UnistreamResource, name: str, limits: Limits, now_ms: int) -> dict[str, Verdict]:
    try:
        client = find_job(unistream.configuration(), name)
    except (NotFound, NothingRuns, ClusterEnded) as error:
        return dict.fromkeys(limits.names, Verdict(False, f"the job does not run: {error}", {}))
    except UnistreamError as error:
        raise dg.Failure(f"job {name}: {error}") from error
    with closing(client):
        info, figures = client.status(), client.checkpoints()
    complete = (figures.latest_completed, figures.latest_savepoint)
    newest = max((one for one in complete if one is not None), key=lambda one: one.timestamp_ms, default=None)
    return judged(info, newest, limits, now_ms)


def _results(
    specs: Sequence[dg.AssetCheckSpec], verdicts: Mapping[str, Verdict], severity: dg.AssetCheckSeverity
) -> Iterator[dg.AssetCheckResult]:
    for spec in specs:
        verdict = verdicts[spec.name]
        yield dg.AssetCheckResult(
            asset_key=spec.asset_key,
            check_name=spec.name,
            passed=verdict.passed,
            severity=severity,
            description=verdict.text,
            metadata=dict(verdict.metadata),
        )
