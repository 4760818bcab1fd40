"""Asset checks of streams: of the job that writes the assets, judged from what it shows without reading any
rows (`unistream.dagster.judging`), and of a table against a query.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import dagster as dg

from unistream.api.environment import Environment
from unistream.base.config.parsing import parse_duration_ms
from unistream.base.errors import ClusterEnded, ConfigError, NotFound, UnistreamError
from unistream.client.submission import NothingRuns
from unistream.dagster.judging import Limits, Verdict, judged, row_count_verdict
from unistream.dagster.report import SINK_METADATA
from unistream.dagster.resource import UnistreamResource
from unistream.dagster.stream import Stream
from unistream.port.sink import DescribesTable


def build_stream_checks(
    assets: dg.AssetsDefinition,
    *,
    max_checkpoint_age: str | None = "10 min",
    max_restarts: int | None = None,
    max_late_rows: int | None = None,
    max_late_ratio: float | None = None,
    max_watermark_lag: str | None = None,
    max_records_behind: int | None = None,
    max_dead_letter_ratio: float | None = None,
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
        max_late_ratio: Such as 0.01: of these to the rows that the sources have read, since the tasks began.
        max_watermark_lag: Such as "5 min": wall clock minus watermark, for jobs in event time. A source that
            has nothing new to read lags as well; without any watermark the check fails after that time.
        max_records_behind: Records that are in the topics and that the job has not read; of a job whose
            sources do not say so (files, tables) the check fails.
        max_dead_letter_ratio: Such as 0.001: of the records that a source could not decode to all that it
            has read, and of the rows that another operator could not process to all that its tasks have got,
            since they began; the worst one counts.
        severity: Of a check that fails.
        job_name: Of the job, if `UnistreamResource.run` was given another one than that of the step.
        resource: Key of the `UnistreamResource` that knows the cluster.
        clock: Seconds since the epoch.

    Raises:
        ConfigError: `max_checkpoint_age` or `max_watermark_lag` is no duration, or a ratio is not between 0
            and 1.
    """
    limits = Limits(
        checkpoint_age_ms=None if max_checkpoint_age is None else parse_duration_ms(max_checkpoint_age),
        restarts=max_restarts,
        late_rows=max_late_rows,
        late_ratio=_share("max_late_ratio", max_late_ratio),
        watermark_lag_ms=None if max_watermark_lag is None else parse_duration_ms(max_watermark_lag),
        records_behind=max_records_behind,
        dead_letter_ratio=_share("max_dead_letter_ratio", max_dead_letter_ratio),
    )
    step, stream = assets.op.name, Stream.of(assets, job_name)
    specs = [dg.AssetCheckSpec(name, asset=key) for key in sorted(assets.keys) for name in limits.names]

    @dg.multi_asset_check(name=f"{step}_checks", specs=specs, required_resource_keys={resource})
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        unistream: UnistreamResource = getattr(context.resources, resource)
        verdicts = _verdicts(unistream, stream, limits, int(clock() * 1000))
        yield from _results(specs, verdicts, severity)

    return checks


def build_row_count_check(
    assets: dg.AssetsDefinition,
    build: Callable[[Environment], None],
    row_count: Callable[[], int],
    *,
    asset: str | Sequence[str] | None = None,
    tolerance: float = 0.0,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
) -> dg.AssetChecksDefinition:
    """The check `row_count` of one asset: the rows of its table against those that a query says it has.

    The table is asked for its number of rows, whether the job runs or not; it reads no rows. A stream makes
    rows visible with its checkpoints: give a `tolerance` for what has not been committed yet.

    Args:
        assets: Made by `unistream_assets`.
        build: The pipeline that writes them.
        row_count: The query, run with each check; what it raises fails the check's step.
        asset: Key of the asset; None: the only one.
        tolerance: Allowed difference, as a share of what `row_count` returns.
        severity: Of a check that fails.

    Raises:
        ConfigError: there is no such asset, or there are several and none was named; or `tolerance` is not
            between 0 and 1.
    """
    spec = _the_asset(assets, asset)
    share = _share("tolerance", tolerance) or 0.0
    sink_uid = spec.metadata[SINK_METADATA]
    name = "_".join((assets.op.name, *spec.key.path, "row_count"))

    @dg.multi_asset_check(
        name=re.sub(r"\W", "_", name), specs=[dg.AssetCheckSpec("row_count", asset=spec.key)]
    )
    def check() -> Iterator[dg.AssetCheckResult]:
        verdict = row_count_verdict(_rows_of(build, sink_uid), row_count(), share)
        yield _result(spec.key, "row_count", verdict, severity)

    return check


def _the_asset(assets: dg.AssetsDefinition, asset: str | Sequence[str] | None) -> dg.AssetSpec:
    specs = {spec.key: spec for spec in assets.specs}
    has = ", ".join(sorted(key.to_user_string() for key in specs))
    if asset is None:
        if len(specs) > 1:
            raise ConfigError(f"step {assets.op.name} writes {has}: say with asset= which one is counted")
        return next(iter(specs.values()))
    key = dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else dg.AssetKey(list(asset))
    if key not in specs:
        raise ConfigError(f"step {assets.op.name} has no asset {key.to_user_string()}; it writes {has}")
    return specs[key]


def _rows_of(build: Callable[[Environment], None], sink_uid: str) -> int | None:
    """None: there is no table. Raises dg.Failure: it cannot say."""
    try:
        env = Environment(target="local")
        build(env)
        sink = env.sinks().get(sink_uid)
        if not isinstance(sink, DescribesTable):
            raise ConfigError(f"sink {sink_uid!r} does not know the rows of its table")
        table = sink.description()
        if table is None:
            return None
        if table.rows is None:
            raise ConfigError(f"the table of sink {sink_uid!r} does not know its rows")
    except UnistreamError as error:
        raise dg.Failure(str(error)) from error
    return table.rows


def _share(name: str, value: float | None) -> float | None:
    if value is not None and not 0 <= value <= 1:
        raise ConfigError(f"{name} is {value}, and a share is between 0 and 1")
    return value


def _verdicts(
    unistream: UnistreamResource, stream: Stream, limits: Limits, now_ms: int
) -> dict[str, Verdict]:
    try:
        client = stream.find(unistream.configuration())
    except (NotFound, NothingRuns, ClusterEnded) as error:
        return dict.fromkeys(limits.names, Verdict(False, f"the job does not run: {error}", {}))
    except UnistreamError as error:
        raise dg.Failure(f"job {stream.name}: {error}") from error
    with closing(client):
        info, figures = client.status(), client.checkpoints()
    complete = (figures.latest_completed, figures.latest_savepoint)
    newest = max((one for one in complete if one is not None), key=lambda one: one.timestamp_ms, default=None)
    return judged(info, newest, limits, now_ms)


def _results(
    specs: Sequence[dg.AssetCheckSpec], verdicts: Mapping[str, Verdict], severity: dg.AssetCheckSeverity
) -> Iterator[dg.AssetCheckResult]:
    for spec in specs:
        yield _result(spec.asset_key, spec.name, verdicts[spec.name], severity)


def _result(
    key: dg.AssetKey, name: str, verdict: Verdict, severity: dg.AssetCheckSeverity
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=verdict.passed,
        severity=severity,
        description=verdict.text,
        metadata=dict(verdict.metadata),
    )
