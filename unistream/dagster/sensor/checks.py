"""Asset checks of streams: of the job that writes the assets, judged from what it shows without reading any
rows (`unistream.dagster.sensor.judging`), and of a table against a query.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import dagster as dg

from unistream.api.environment import Environment
from unistream.base.config.parsing import parse_duration_ms
from unistream.base.errors import ConfigError, UnistreamError
from unistream.dagster.run.metadata import SINK_METADATA
from unistream.dagster.run.resource import UnistreamResource
from unistream.dagster.run.seen import NotSeen
from unistream.dagster.run.stream import AssetStream
from unistream.dagster.run.translator import CheckTranslatorData, UnistreamTranslator
from unistream.dagster.sensor.judging import CheckVerdict, HealthLimits, judged_seen, row_count_verdict
from unistream.dagster.sensor.looking import look
from unistream.port.sink import DescribesTable

CHECK: Final = "unistream/check"
"""Metadata of a check: which one it is, whatever a translator calls it."""

LIMIT: Final = "unistream/limit"
"""Metadata of a check: its limit; durations in ms."""

SEVERITY: Final = "unistream/severity"
"""Metadata of a check: as it was given; otherwise the result says it."""


Severity: TypeAlias = dg.AssetCheckSeverity | Mapping[str, dg.AssetCheckSeverity] | None


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
    severity: Severity = None,
    translator: UnistreamTranslator | None = None,
    job_name: str | None = None,
    resource: str = "unistream",
    clock: Callable[[], float] = time.time,
) -> dg.AssetChecksDefinition:
    """Checks of the job that writes `assets`, of each asset: `stream_is_running`, and one for each limit that
    is given.

    The sensor of `build_commit_sensor` in the same definitions evaluates them, after each materialisation and
    when one changes; and so do the button, a schedule over `dg.AssetSelection.checks(...)`, and automation
    conditions, each check alone or all.

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
        severity: Of checks that fail, or by name of the check. Otherwise a warning; a job that has failed, or
            whose cluster has ended, is an error of `stream_is_running`.
        translator: Names and describes them; None: `UnistreamTranslator()`.
        job_name: Of the job, if `UnistreamResource.run` was given another one than that of the step.
        resource: Key of the `UnistreamResource` that knows the cluster.
        clock: Seconds since the epoch.

    Raises:
        ConfigError: `max_checkpoint_age` or `max_watermark_lag` is no duration, a ratio is not between 0
            and 1, or `severity` names no check of these.
    """
    limits = HealthLimits(
        checkpoint_age_ms=None if max_checkpoint_age is None else parse_duration_ms(max_checkpoint_age),
        restarts=max_restarts,
        late_rows=max_late_rows,
        late_ratio=_share("max_late_ratio", max_late_ratio),
        watermark_lag_ms=None if max_watermark_lag is None else parse_duration_ms(max_watermark_lag),
        records_behind=max_records_behind,
        dead_letter_ratio=_share("max_dead_letter_ratio", max_dead_letter_ratio),
    )
    stream = AssetStream.of(assets, job_name)
    specs = _specs(assets, limits, _severities(severity, limits), translator or UnistreamTranslator())

    @dg.multi_asset_check(
        name=f"{assets.op.name}_checks", specs=specs, can_subset=True, required_resource_keys={resource}
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        unistream: UnistreamResource = getattr(context.resources, resource)
        wanted = context.op_execution_context.selected_asset_check_keys
        seen = look(stream, unistream.configuration(), unistream.target)
        if isinstance(seen, NotSeen):
            raise dg.Failure(f"job {stream.name}: {seen.why}")
        verdicts = judged_seen(seen, limits, int(clock() * 1000))
        for spec in specs:
            if spec.key in wanted:
                verdict = verdict_of(spec, verdicts)
                yield _result(spec.asset_key, spec.name, verdict, verdict.severity)

    return checks


def _specs(
    assets: dg.AssetsDefinition,
    limits: HealthLimits,
    severities: Mapping[str, dg.AssetCheckSeverity],
    translator: UnistreamTranslator,
) -> list[dg.AssetCheckSpec]:
    """The sensor finds all that it needs to evaluate a check in the metadata of its spec."""
    specs = []
    for asset in sorted(assets.specs, key=lambda spec: spec.key):
        for check, text in limits.texts.items():
            ours: dict[str, Any] = {CHECK: check}
            if check in limits.by_name:
                ours[LIMIT] = limits.by_name[check]
            if check in severities:
                ours[SEVERITY] = severities[check].value
            data = CheckTranslatorData(asset=asset, name=check, description=text)
            spec = translator.get_asset_check_spec(data)
            specs.append(spec.with_metadata({**spec.metadata, **ours}))
    return specs


def limits_of(specs: Iterable[dg.AssetCheckSpec]) -> HealthLimits:
    """The limits of the checks of one asset, as `build_stream_checks` has made them."""
    return HealthLimits.of(
        {spec.metadata[CHECK]: spec.metadata[LIMIT] for spec in specs if LIMIT in spec.metadata}
    )


def verdict_of(spec: dg.AssetCheckSpec, verdicts: Mapping[str, CheckVerdict]) -> CheckVerdict:
    """The verdict of a check, with its own severity if it has one."""
    verdict, severity = verdicts[spec.metadata[CHECK]], spec.metadata.get(SEVERITY)
    return verdict if severity is None else replace(verdict, severity=dg.AssetCheckSeverity(severity))


def _severities(given: Severity, limits: HealthLimits) -> Mapping[str, dg.AssetCheckSeverity]:
    """The severities by the name of the check. Raises ConfigError: there is no such check."""
    if given is None:
        return {}
    if isinstance(given, dg.AssetCheckSeverity):
        return dict.fromkeys(limits.names, given)
    unknown = sorted(given.keys() - set(limits.names))
    if unknown:
        raise ConfigError(f"severity: there is no check {unknown[0]!r}; there are {', '.join(limits.names)}")
    return given


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
        name=re.sub(r"\W", "_", name),
        specs=[dg.AssetCheckSpec("row_count", asset=spec.key, description=_count_text(share))],
    )
    def check() -> Iterator[dg.AssetCheckResult]:
        verdict = row_count_verdict(_rows_of(build, sink_uid), row_count(), share)
        yield _result(spec.key, "row_count", verdict, severity)

    return check


def _count_text(tolerance: float) -> str:
    within = f", within {100 * tolerance:g} %" if tolerance else ""
    return f"The table has as many rows as the query says{within}."


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


def _result(
    key: dg.AssetKey, name: str, verdict: CheckVerdict, severity: dg.AssetCheckSeverity
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=verdict.passed,
        severity=severity,
        description=verdict.text,
        metadata=dict(verdict.metadata),
    )
