"""A pipeline in a `defs.yaml`: its tables as assets, and what a stream needs next to them.

type: unistream.dagster.UnistreamJobComponent
attributes:
pipeline: .pipeline:orders        # MODULE:FUNCTION; with a dot: next to the file
arguments: {lake: s3://lake}      # of the function, behind the environment
unistream: {target: remote, jobmanager: "zookeeper://zk1:2181"}
translation: {group_name: sales, key_prefix: silver}
stop_with_savepoint: {cron_schedule: "0 22 * * *", drain: true}
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
from collections.abc import Callable, Iterator, Sequence
from functools import partial, update_wrapper
from typing import Annotated, Any, Final, Self

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unistream.api.environment import Environment
from unistream.api.load import build
from unistream.base.config import value_text
from unistream.base.errors import ConfigError
from unistream.dagster.component.attributes import (
    BACKFILL,
    PARTITIONS,
    CommitSensor,
    DrainSchedule,
    Reconciling,
    RowCount,
    SavepointSchedule,
    StopSchedule,
    StreamChecks,
    of_schedule,
    pipeline_of,
    severity_of,
)
from unistream.dagster.component.scaffolder import UnistreamJobScaffolder
from unistream.dagster.operation.drain_resume import DrainAndResume, build_drain_and_resume_schedule
from unistream.dagster.operation.operations import (
    build_savepoint_schedule,
    build_stop_with_savepoint_schedule,
)
from unistream.dagster.run.assets import unistream_assets
from unistream.dagster.run.resource import UnistreamResource
from unistream.dagster.run.settings import check_templates
from unistream.dagster.run.translator import CheckTranslatorData, SinkTranslatorData, UnistreamTranslator
from unistream.dagster.sensor.checks import build_row_count_check, build_stream_checks
from unistream.dagster.sensor.commit_sensor import build_commit_sensor
from unistream.dagster.sensor.reconciling import build_reconciling_sensor

RESOURCE: Final = "unistream"
"""Key of the project's resource, if the component has none of its own."""


def _resource(settings: dict[str, Any]) -> UnistreamResource:
    known = UnistreamResource.model_fields
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise ConfigError(
            f"unistream: there is no setting {unknown[0]!r} of the resource; there are {', '.join(known)}"
        )
    config = settings.get("config")
    if isinstance(config, dict):  # numbers and booleans, as elsewhere
        texts = {key: value_text(key, value) for key, value in config.items()}
        settings = {**settings, "config": texts}
    try:
        return UnistreamResource(**settings)
    except (ValidationError, dg.DagsterInvalidConfigError) as error:
        raise ConfigError(f"unistream: {error}") from error


@dg.scaffold_with(UnistreamJobScaffolder)
class UnistreamJobComponent(dg.Component, dg.Model, dg.Resolvable):
    """A pipeline whose sinks are assets, which one job writes.

    Attributes:
        pipeline: MODULE:FUNCTION, a function that takes an `Environment`; `.MODULE:FUNCTION`: of a module
            next to the `defs.yaml`.
        arguments: Of the function, by name.
        name: Of the step and the job; default: that of the function.
        unistream: Settings of a `UnistreamResource` of its own; None: the project's resource "unistream".
        translation: Attributes of all assets, such as `group_name` or `key_prefix`; templates see `sink` (a
            `SinkLineage`) and `spec`.
        partitions_def, backfill_policy: Of a pipeline that ends and writes the partitions of its run: it has
            an argument `partitions`, their keys, and the first one of all when definitions are loaded. None:
            it is a stream, or one without partitions.
        commit_sensor: Commits become materialisations (`build_commit_sensor`); false: they do not.
        reconciling: Runs whose host has died are reported (`build_reconciling_sensor`), also those of the
            schedules; None: they are not.
        checks: None: no checks of the stream.
        row_count: The rows of a table against a query (`build_row_count_check`); None: no such check.
        stop_with_savepoint, savepoint: None: no schedule.
        drain_and_resume: A schedule that makes room for a step, and the sensor that lets the stream go on
            (`build_drain_and_resume_schedule`); None: neither.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    pipeline: Annotated[Callable[..., object], dg.Resolver(pipeline_of, model_field_type=str)]
    arguments: dict[str, Any] = Field(default_factory=dict)
    name: str | None = None
    unistream: dict[str, Any] | None = None
    translation: (
        Annotated[
            TranslationFn[SinkTranslatorData],
            TranslationFnResolver[SinkTranslatorData](lambda data: {"sink": data.sink}),
        ]
        | None
    ) = None
    partitions_def: Annotated[dg.PartitionsDefinition[Any] | None, PARTITIONS] = None
    backfill_policy: Annotated[dg.BackfillPolicy | None, BACKFILL] = None
    commit_sensor: bool | CommitSensor = True
    reconciling: Reconciling | None = Field(default_factory=Reconciling)
    checks: StreamChecks | None = Field(default_factory=StreamChecks)
    stop_with_savepoint: StopSchedule | None = None
    savepoint: SavepointSchedule | None = None
    drain_and_resume: DrainSchedule | None = None
    row_count: RowCount | None = None

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Raises ConfigError: a variable of the environment is not set; else as Dagster's own."""
        if attributes is not None:
            resolution = context.resolution_context
            check_templates(attributes.model_dump(exclude_unset=True), resolution.resolve_value)
        return super().load(attributes, context)

    def build(self, env: Environment, partitions: Sequence[str] | None = None) -> None:
        """Adds the pipeline to the environment. `partitions`: keys of the run; None: of none."""
        arguments = dict(self.arguments)
        if self.partitions_def is not None:
            arguments["partitions"] = self._example() if partitions is None else list(partitions)
        function = partial(self.pipeline, **arguments)
        build(update_wrapper(function, self.pipeline), env)

    def _example(self) -> list[str]:
        """The first partition, or none if there is none yet: to describe the pipeline."""
        assert self.partitions_def is not None, "there are partitions"
        first = self.partitions_def.get_first_partition_key()
        return [] if first is None else [first]

    def get_asset_spec(self, data: SinkTranslatorData) -> dg.AssetSpec:
        """The asset that a sink writes; override it for what `translation` cannot say."""
        spec = UnistreamTranslator().get_asset_spec(data)
        return spec if self.translation is None else self.translation(spec, data)

    def get_asset_check_spec(self, data: CheckTranslatorData) -> dg.AssetCheckSpec:
        """A check of `checks`; override it for another name, an automation condition, or ``blocking``."""
        return UnistreamTranslator().get_asset_check_spec(data)

    def execute(
        self, context: dg.AssetExecutionContext, unistream: UnistreamResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """Runs the job; override it to do something before or after."""
        has_partitions = context.has_partition_key or context.has_partition_key_range
        build = partial(self.build, partitions=list(context.partition_keys)) if has_partitions else self.build
        yield from unistream.run(context, build)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """See the class."""
        name = self.name or str(getattr(self.pipeline, "__name__", RESOURCE))
        resource = RESOURCE if self.unistream is None else f"{RESOURCE}_{name}"

        @unistream_assets(
            self.build,
            translator=_OfComponent(self),
            name=name,
            required_resource_keys={resource},
            bounded=self.partitions_def is not None,
            partitions_def=self.partitions_def,
            backfill_policy=self.backfill_policy,
        )
        def assets(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
            yield from self.execute(context, getattr(context.resources, resource))

        schedules, drain = self._schedules(assets, resource), self._drain(assets, resource)
        return dg.Definitions(
            assets=[assets],
            resources={} if self.unistream is None else {resource: _resource(self.unistream)},
            sensors=self._sensors(assets, name, resource, [*schedules, *drain]),
            schedules=[*schedules, *(one.schedule for one in drain)],
            asset_checks=self._checks(assets, resource),
        )

    def _sensors(
        self,
        assets: dg.AssetsDefinition,
        name: str,
        resource: str,
        operations: Sequence[dg.ScheduleDefinition | DrainAndResume],
    ) -> list[dg.SensorDefinition]:
        found = [one.sensor for one in operations if isinstance(one, DrainAndResume)]
        if self.commit_sensor:
            of_commits = CommitSensor() if self.commit_sensor is True else self.commit_sensor
            found.append(
                build_commit_sensor(
                    [assets],
                    name=f"{name}_commits",
                    resource=resource,
                    minimum_interval_seconds=of_commits.minimum_interval_seconds,
                    default_status=dg.DefaultSensorStatus[of_commits.default_status],
                )
            )
        if self.reconciling is not None:
            found.append(
                build_reconciling_sensor(
                    [assets],
                    operations=operations,
                    name=f"{name}_reconciling",
                    resource=resource,
                    silent_after_s=self.reconciling.silent_after_s,
                    unlinked_after_s=self.reconciling.unlinked_after_s,
                    default_status=dg.DefaultSensorStatus[self.reconciling.default_status],
                )
            )
        return found

    def _drain(self, assets: dg.AssetsDefinition, resource: str) -> list[DrainAndResume]:
        one = self.drain_and_resume
        if one is None:
            return []
        return [
            build_drain_and_resume_schedule(
                assets,
                one.cron_schedule,
                between=one.between,
                drain=one.drain,
                savepoint_dir=one.savepoint_dir,
                resource=resource,
                execution_timezone=one.execution_timezone,
                default_status=dg.DefaultScheduleStatus[one.default_status],
            )
        ]

    def _schedules(self, assets: dg.AssetsDefinition, resource: str) -> list[dg.ScheduleDefinition]:
        found = []
        if self.stop_with_savepoint is not None:
            given = of_schedule(self.stop_with_savepoint)
            found.append(build_stop_with_savepoint_schedule(assets, resource=resource, **given))
        if self.savepoint is not None:
            given = of_schedule(self.savepoint)
            found.append(build_savepoint_schedule(assets, resource=resource, **given))
        return found

    def _checks(self, assets: dg.AssetsDefinition, resource: str) -> list[dg.AssetChecksDefinition]:
        found = []
        if self.checks is not None:
            given = {**self.checks.model_dump(), "severity": severity_of(self.checks.severity)}
            translator = _OfComponent(self)
            found.append(build_stream_checks(assets, translator=translator, resource=resource, **given))
        one = self.row_count
        if one is not None:
            asset = None if one.asset is None else one.asset.split("/")
            found.append(
                build_row_count_check(
                    assets,
                    self.build,
                    one.query,
                    asset=asset,
                    tolerance=one.tolerance,
                    severity=dg.AssetCheckSeverity[one.severity],
                )
            )
        return found


class _OfComponent(UnistreamTranslator):
    """Asks the component."""

    def __init__(self, component: UnistreamJobComponent) -> None:
        self._component = component

    def get_asset_spec(self, data: SinkTranslatorData) -> dg.AssetSpec:
        return self._component.get_asset_spec(data)

    def get_asset_check_spec(self, data: CheckTranslatorData) -> dg.AssetCheckSpec:
        return self._component.get_asset_check_spec(data)
