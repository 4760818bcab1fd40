"""Time partitions of a stream's table, computed again from its history: an asset whose step is
`unistream backfill`.

    dialog ── a run for each contiguous range ──► step ──► unistream backfill JOB --from … --to …
                                                            stop, fence, compute, replace, resume

The journal of the command makes it repeatable: the same range again goes on with a backfill that has not
ended, so a run that repeats one whose process died needs to know nothing of it.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import dagster as dg

from unistream.api.environment import Environment
from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.ids import JobId
from unistream.client.job.lookup import find_job
from unistream.client.remote.rest_client import RestJobClient
from unistream.dagster.operation.backfill_command import (
    BackfillCommandResult,
    CommandOptions,
    Figures,
    options_for,
    perform,
)
from unistream.dagster.operation.operations import RESOURCE
from unistream.dagster.run.attached import INTERRUPTIONS
from unistream.dagster.run.metadata import BACKFILL_METADATA, SINK_METADATA, ordered
from unistream.dagster.run.resource import UnistreamResource
from unistream.dagster.run.stream import AssetStream
from unistream.dagster.run.watching import LeftToAnother, RunWatch
from unistream.model.job_info import JobInfo
from unistream.model.time_range import moment_ms, time_text

logger = logging.getLogger(__name__)

_GO_ON: Final = "Re-execute this run: a backfill that has begun goes on where it stopped"


def build_backfill_asset(
    stream: dg.AssetsDefinition,
    pipeline: str | Callable[[Environment], object],
    *,
    key: str | Sequence[str],
    partitions_def: dg.TimeWindowPartitionsDefinition,
    sink: str | None = None,
    column: str | None = None,
    lookback: str | None = None,
    history_complete: bool = False,
    compute_on: str = "remote",
    config: Mapping[str, str] | None = None,
    savepoint_dir: str | None = None,
    state_dir: str | None = None,
    job_name: str | None = None,
    pool: str | None = None,
    resource: str = RESOURCE,
    **options: Any,
) -> dg.AssetsDefinition:
    """An asset of the time partitions of a stream's table. To materialize some of them computes these times
    again from the history of the stream's `HybridSource`, as `unistream backfill` does: the job is stopped
    with a savepoint, the range is replaced in one commit, and the job goes on from the savepoint.

    A contiguous range is one run. One that fails or is terminated in the middle may leave the job stopped;
    then the same run again (*Re-execute*, or Dagster's retry) goes on, or `unistream backfill JOB --abort`
    lets the job go on without a replacement. Nothing materializes the asset by itself: give it to
    `build_commit_sensor(partitions=[…])`, which reports partitions as the watermark closes them.

    Args:
        stream: Made by `unistream_assets`; its job runs on a session cluster.
        pipeline: That of the job: MODULE:FUNCTION, or a function at the top of a module.
        key: Of the asset.
        partitions_def: By hour, day, week or month, of the times in `column`.
        sink: Uid of the sink whose table it is; None: the only one that can be replaced.
        column: With the time of a row; None: as the sink says, else `window_start`.
        lookback: How far the events of a result are from its time, such as "2 d"; None: by the windows.
        history_complete: Whether the history covers the range is not checked.
        compute_on: Where the range is computed: "remote", the cluster of the job; "spark" or "local", on the
            machine of the run.
        config: On top of the resource's, as `UnistreamResource.run` was given it.
        savepoint_dir: Folder for the savepoint of the stop; None: as the configuration says, or next to the
            journal, which a cluster on other machines cannot write.
        state_dir: Folder for the journal, on a disk that the next run sees, too; None: `backfills` in the
            home of unistream.
        job_name: Of the job, if `UnistreamResource.run` was given another one than that of the step.
        pool: None: that of the stream, so that no run of the stream starts while its job is stopped.
        resource: Key of the `UnistreamResource` that knows the cluster.
        options: Further arguments of `dg.AssetSpec`, such as `group_name`.

    Raises:
        ConfigError: `stream` was not made by `unistream_assets` or has no such sink, the partitions are not
            by time or have gaps, or the pipeline cannot be imported by its name.
    """
    _check(partitions_def)
    backfill = _Backfill(
        stream=AssetStream.of(stream, job_name),
        pipeline=reference_of(pipeline),
        target=compute_on,
        config=dict(config or {}),
        words=_words(sink, column, lookback, savepoint_dir, state_dir, history_complete=history_complete),
    )

    about = {"kinds": {"unistream"}, "description": f"Results of {backfill.job}, by time", **options}
    metadata = {**about.pop("metadata", {}), BACKFILL_METADATA: backfill.job}
    spec = dg.AssetSpec(
        key, deps=_upstream(stream, sink), partitions_def=partitions_def, metadata=metadata, **about
    )

    @dg.multi_asset(
        specs=[spec],
        name=spec.key.to_python_identifier(),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=pool or f"unistream_{stream.op.name}",
        required_resource_keys={resource},
    )
    def computed_again(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        return backfill.run(context, getattr(context.resources, resource))

    return computed_again


def reference_of(pipeline: str | Callable[[Environment], object]) -> str:
    """MODULE:FUNCTION, by which another process finds it. Raises ConfigError.

    >>> reference_of(reference_of)
    'unistream.dagster.operation.backfill_asset:reference_of'
    """
    if isinstance(pipeline, str):
        module, _, name = pipeline.partition(":")
        if not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
            raise ConfigError(f"{pipeline!r} is not MODULE:FUNCTION, such as flights.pipeline:build")
        return pipeline
    name = getattr(pipeline, "__qualname__", "")
    if not inspect.isfunction(pipeline) or "<" in name or pipeline.__module__ == "__main__":
        raise ConfigError(
            f"a backfill loads its pipeline in another process, and {name or pipeline!r} cannot be imported "
            "there: give a function at the top of a module, or its name as 'MODULE:FUNCTION'"
        )
    return f"{pipeline.__module__}:{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backfill:
    """What a run does. `words`: further options of the command."""

    stream: AssetStream
    pipeline: str
    target: str
    config: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    @property
    def job(self) -> str:
        """Name of the stream's job."""
        return self.stream.name

    def run(
        self, context: dg.AssetExecutionContext, unistream: UnistreamResource
    ) -> dg.MaterializeResult[Any]:
        """Raises dg.Failure: nothing was replaced, or it is not known yet."""
        window = context.partition_time_window
        try:
            options = self.options(unistream)
            words = self.command(self.job_for_command(unistream), window.start, window.end)
        except ConfigError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        context.log.info("unistream %s", " ".join(words))

        def say(line: str) -> None:
            context.log.info("%s", line)

        with closing(self.watched(unistream.watch(context), unistream)) as watch:

            def check() -> None:
                if watch.lost is not None:
                    raise LeftToAnother(watch.lost)

            return result_of(self._performed(words, options, say, check, context, unistream))

    def watched(self, watch: RunWatch, unistream: UnistreamResource) -> RunWatch:
        """Its heartbeats, as those of the runs that watch the job: of a host that dies, the run is found."""
        try:
            with closing(self.stream.find(unistream.configuration())) as client:
                watch.begin(JobId(client.job_id))
        except UnistreamError as error:  # the command says what is wrong
            logger.info("event=backfill_not_watched job=%s reason=%r", self.job, str(error))
        return watch

    def _performed(  # noqa: PLR0917
        self,
        words: Sequence[str],
        options: CommandOptions,
        say: Callable[[str], None],
        check: Callable[[], None],
        context: dg.AssetExecutionContext,
        unistream: UnistreamResource,
    ) -> BackfillCommandResult:
        try:
            return perform(
                [*words, *options.words],
                say,
                variables=options.variables,
                end_s=unistream.terminate_timeout_s,
                check=check,
            )
        except LeftToAnother as left:
            text = f"{left}: this run has ended its backfill, which is unfinished"
            raise dg.Failure(text, allow_retries=False) from left
        except INTERRUPTIONS:
            context.log.warning(
                "the backfill was interrupted, and the job %s may be stopped. %s; so does 'unistream "
                "backfill %s', and with --abort the job goes on without a replacement",
                self.job,
                _GO_ON,
                self.job,
            )
            raise

    def job_for_command(self, unistream: UnistreamResource) -> str:
        """The job's name; or its id, where another job has that name, too.

        Raises:
            ConfigError: a job of that name runs, and writes other tables.
        """
        if not self.stream.knows_tables:
            return self.job
        own = _job_of(lambda: self.stream.find(unistream.configuration()))
        named = _job_of(lambda: find_job(unistream.configuration(), self.job))
        if own is None and named is not None and not named.is_terminal:
            raise ConfigError(
                f"job {self.job!r} here ({named.job}) writes other tables than those of this asset: nothing "
                "was computed. Start the stream of the asset first, or give it a name of its own"
            )
        return self.job if own is None or named is None or own.job == named.job else str(own.job)

    def command(self, job: str, begin: datetime, end: datetime) -> list[str]:
        """The words of the command, as the log of the run shows it: without the configuration, in which there
        may be secrets."""
        times = ("--from", time_text(moment_ms(begin)), "--to", time_text(moment_ms(end)))
        where = ("-t", self.target, "--json")
        return ["backfill", job, "--pipeline", self.pipeline, *times, *where, *self.words]

    def options(self, unistream: UnistreamResource) -> CommandOptions:
        """The configuration of the stream's runs, with which the job is resumed. What surrounds this process
        surrounds the command, too. Raises ConfigError."""
        if unistream.target != "remote":
            raise ConfigError(
                f"a backfill stops the job and lets it go on, and with target {unistream.target!r} the job "
                "ends with the process of its run: let the target of the resource be remote, a session "
                "cluster"
            )
        options = options_for(unistream.options(self.config).given.to_dict())
        return replace(options, variables={**options.variables, **unistream.access().variables()})


def _job_of(find: Callable[[], RestJobClient]) -> JobInfo | None:
    """None: there is none, or several, or the cluster does not answer: the command says what is wrong."""
    try:
        with closing(find()) as client:
            return client.status()
    except UnistreamError:
        return None


def result_of(ended: BackfillCommandResult) -> dg.MaterializeResult[Any]:
    """Raises dg.Failure: the command has failed; `allow_retries`: the same command may end otherwise."""
    figures = ended.figures
    if ended.code == 0 and figures is not None and figures.verdict == "replaced":
        version = None if figures.version is None else dg.DataVersion(str(figures.version))
        return dg.MaterializeResult(metadata=metadata_of(figures), data_version=version)
    if figures is not None:
        text = f"nothing was replaced: {figures.reason}"
        raise dg.Failure(text, metadata=metadata_of(figures), allow_retries=False)
    if ended.is_final:
        raise dg.Failure(ended.sentence, allow_retries=False)
    raise dg.Failure(f"{ended.sentence}. {_GO_ON}")


def metadata_of(figures: Figures) -> dict[str, Any]:
    """The metadata of the whole range, also if it is several partitions."""
    rows_figures = {
        "unistream/table_version": figures.version,
        "unistream/fence_version": figures.fence_version,
        "unistream/job_id": figures.job,
        "unistream/savepoint": figures.savepoint and dg.MetadataValue.path(figures.savepoint),
    }
    metadata = {
        "unistream/backfill": figures.backfill,
        "unistream/table": figures.table,
        "unistream/range": f"{time_text(figures.from_ms)} to {time_text(figures.to_ms)}",
        "unistream/rows_removed": figures.rows_removed,
        "unistream/rows_added": figures.rows_added,
        "unistream/rows_outside": figures.rows_outside,
        **{name: value for name, value in rows_figures.items() if value is not None},
    }
    return ordered(metadata)


def _words(
    sink: str | None,
    column: str | None,
    lookback: str | None,
    savepoint_dir: str | None,
    state_dir: str | None,
    *,
    history_complete: bool,
) -> tuple[str, ...]:
    given = {
        "--sink": sink,
        "--column": column,
        "--lookback": lookback,
        "--savepoint-path": savepoint_dir,
        "--state": state_dir,
    }
    words = [word for name, value in given.items() if value is not None for word in (name, value)]
    return (*words, *(["--history-complete"] if history_complete else []))


def _check(partitions_def: object) -> None:
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        raise ConfigError(
            "a backfill is of a range of time: give it partitions_def=dg.DailyPartitionsDefinition(...), or "
            "one by hour, week or month"
        )
    if partitions_def.exclusions:
        raise ConfigError(
            "a backfill replaces a range without gaps: give it a partitions_def without exclusions"
        )


def _upstream(stream: dg.AssetsDefinition, sink: str | None) -> list[dg.AssetKey]:
    """The assets whose table is replaced."""
    uids = {spec.key: spec.metadata.get(SINK_METADATA) for spec in stream.specs}
    plain = [key.to_user_string() for key, uid in uids.items() if uid is None]
    if plain:
        raise ConfigError(
            f"asset {plain[0]} is of no sink: build_backfill_asset takes what unistream_assets has made"
        )
    if sink is not None and sink not in uids.values():
        has = ", ".join(repr(uid) for uid in uids.values())
        raise ConfigError(f"{stream.op.name} has no asset of the sink {sink!r}; it has {has}")
    return [key for key, uid in uids.items() if sink in (None, uid)]
