"""Where a pipeline is built and started."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import structs

from unistream.api.bootstrap import BootstrapOrder
from unistream.api.frames import Frames
from unistream.api.graph import (
    GraphBuilder,
    check_max_parallelism,
    check_parallelism,
)
from unistream.api.lineage import written_by
from unistream.api.plans import PlanMethods
from unistream.api.sink_order import order_advice
from unistream.api.sinks import (
    check_new_lines,
    commit_advice,
    dangling_advice,
    last_commits,
    without_line,
)
from unistream.api.slots import SlotSharingGroup
from unistream.api.sources import SourceMethods
from unistream.base.config import (
    CHECKPOINT_INTERVAL,
    OFFLOAD_BOUNDED,
    Configuration,
    ConfigValue,
)
from unistream.base.config_file import LayeredConfig
from unistream.base.errors import ConfigError
from unistream.base.object_stores import use_store
from unistream.base.targets import Target, known_target
from unistream.client.embedded import at_exit  # noqa: F401  # its hook must be older than those of the script
from unistream.client.job.resume import LATEST
from unistream.client.machine.surroundings import layered
from unistream.core import graph as graphs
from unistream.model.graph import JobGraph

if TYPE_CHECKING:
    from unistream.client.remote.job_client import JobClient, JobResult
    from unistream.model.submission import SubmitRequest

_log = logging.getLogger(__name__)


class Environment(SourceMethods, PlanMethods):
    """Collects a pipeline's operators and runs them.

    Args:
        config: Options by key (`docs/reference/configuration.md`), as text, numbers or booleans; unknown keys
            are refused. They count before those of config.yaml and of variables of the environment
            (`docs/guide/configuration.md`).
        target: ``"spark"``, ``"local"`` (child processes) or ``"remote"`` (a running cluster). None: Spark,
            or local if Spark is not installed.

    >>> import unistream as us
    >>> env = us.Environment({"parallelism.default": "2"})
    >>> env.parallelism
    2
    """

    def __init__(
        self,
        config: LayeredConfig | Configuration | Mapping[str, ConfigValue] | None = None,
        *,
        target: Target | None = None,
    ) -> None:
        super().__init__(layered(config), None if target is None else known_target(target))
        use_store(self._config)
        self._builder = GraphBuilder(self._started, offloads=self._config.get(OFFLOAD_BOUNDED))
        check_parallelism(self.parallelism, self._max_parallelism(), "environment")
        if (most := self._max_parallelism()) is not None:
            check_max_parallelism(most, self.parallelism, "environment")

    def register_slot_sharing_group(self, group: SlotSharingGroup) -> Environment:
        """Declares the resources of one slot of a group. Operators may then use only registered groups, so
        that a misspelled name is found.

        Raises:
            ConfigError: the group had other resources before.
        """
        if not isinstance(group, SlotSharingGroup):
            raise ConfigError("register_slot_sharing_group takes a SlotSharingGroup")
        self._builder.register(group)
        return self

    def check_new_lines(
        self, *, savepoint: str | os.PathLike[str] | None = None, request_id: str | None = None
    ) -> None:
        """Whether a job may begin to write to where its sinks do; `execute` calls it. With a savepoint the
        workers know, and a request with an id may be for a job that runs.

        Raises:
            ConfigError: another line of jobs writes there.
        """
        if savepoint is None and request_id is None:
            check_new_lines(self._builder.finished(self._builder.graph.name))

    def latest_snapshot(self, name: str | None = None) -> str | None:
        """The directory of the snapshot from which a job of this pipeline goes on, as with
        ``savepoint="latest"``: of the job that wrote last to where the sinks do, however that
        ended (`unistream.client.job.resume`).

        Args:
            name: Of the job: by it, and by where they wrote, former jobs are found whose targets do not
                record who has written them, such as topics.

        Returns:
            None: no job has written there, or it has read all of its input.

        Raises:
            ConfigError: that job still runs, its snapshots are gone, or the sinks have the output of several
                lines of jobs.
            CorruptSnapshot: its newest snapshot is damaged.
            Unreachable: what knows the job, or a storage, does not answer.
        """
        from unistream.client.job.resume import latest_snapshot

        graph = self.stream_graph(name)
        return latest_snapshot(
            last_commits(graph),
            written_by(graph),
            config=self._config,
            target=self._target,
            name=graph.name,
            without_line=without_line(graph),
            bounded=self.is_bounded(),
        )

    def check_nobody_writes(self) -> None:
        """Raises ConfigError (`unistream.client.job.resume.StillRuns`): a job of the remote cluster that the
        environment names writes to where its sinks do; Unreachable: the cluster does not answer."""
        from unistream.client.job.resume import check_nobody_writes

        check_nobody_writes(written_by(self.stream_graph()), config=self._config, target=self._target)

    def execute(
        self,
        name: str | None = None,
        *,
        savepoint: str | os.PathLike[str] | None = None,
        allow_non_restored_state: bool = False,
    ) -> JobResult:
        """Runs the job and waits for its end.

        Args:
            name: Name of the job.
            savepoint: Directory of a savepoint or checkpoint to start from; "latest": that of
                `latest_snapshot`, or from the beginning if there is none.
            allow_non_restored_state: State whose operator the job does not have is dropped instead of refused
                (also `execution.state-recovery.ignore-unclaimed-state`).

        Raises:
            ConfigError: the job cannot start as it is.
            JobCancelled: it was cancelled.
            UnistreamError: it failed; the text says why.
        """
        from unistream.client.job.reported import reported_result

        job, frames = self._start(name, savepoint, allow_non_restored_state, None)
        try:
            with job:
                return reported_result(job)
        finally:
            frames.wait_removed()

    def bootstrap(
        self,
        savepoint: str | os.PathLike[str],
        *,
        until: datetime | int | None = None,
        name: str | None = None,
    ) -> JobResult:
        """Reads the history of the pipeline's hybrid sources as a BATCH job, and writes a savepoint from
        which the job goes on with live rows: `execute(savepoint=…)`. Waits for the end.

        What is complete at the fence is in the sinks then; open windows, timers and all other state are in
        the savepoint. Live rows start at the positions that the live source has now. See
        docs/guide/bootstrap.md.

        Args:
            savepoint: The directory of the savepoint: a new one, or what a bootstrap that died has left.
            until: The fence that all hybrid sources must have (`datetime`, without a zone in UTC; or ms since
                1970); None: whatever they have.
            name: Name of the job.

        Raises:
            ConfigError: the pipeline has no hybrid source, or an unbounded one of another kind; a fence is
                not `until`; the directory has a savepoint already, or other files; the target has no Spark.
            UnistreamError: it failed; the text says why. Without a savepoint nothing is visible in the sinks.

        >>> import pyarrow as pa
        >>> import unistream as us
        >>> history = us.StaticSource(pa.table({"user": [1, 1], "seen_at": [10, 20]}))
        >>> live = us.StaticSource(pa.table({"user": [1], "seen_at": [30]}))
        >>> source = us.HybridSource(history, live, fence=25, timestamp_column="seen_at")
        >>> env = us.Environment()
        >>> times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("seen_at")
        >>> _ = env.from_source(source, times, "rows").uid("rows").print()
        >>> try:
        ...     env.bootstrap("START", until=26)
        ... except us.ConfigError as error:
        ...     print(str(error).partition(";")[0])
        bootstrap: until is 26 ms, and the fence of source 'rows' is 25 ms
        """
        from unistream.client.job.reported import reported_result

        order = BootstrapOrder.of(savepoint, until)
        job, frames = self._start(name, None, False, None, order)
        try:
            with job:
                done = reported_result(job)
                return structs.replace(done, savepoint=order.savepoint, resumable_savepoint=order.savepoint)
        finally:
            frames.wait_removed()

    @contextmanager
    def _started(self, name: str | None, options: Mapping[str, str]) -> Iterator[JobClient]:
        """A job with other options, which ends at the latest when this does."""
        before = self._options
        self._set(options)
        try:
            job, frames = self._start(name, None, False, None)
        finally:
            self._have(before)
        try:
            with job:
                yield job
        finally:
            frames.wait_removed()

    def execute_async(
        self,
        name: str | None = None,
        *,
        savepoint: str | os.PathLike[str] | None = None,
        allow_non_restored_state: bool = False,
        request_id: str | None = None,
        alone: bool = False,
    ) -> JobClient:
        """Starts the job and returns at once; the client controls it. Other arguments as for `execute`.

        On the targets "spark" and "local" the job's cluster lives in this process. A script that ends without
        having waited for the job, or closed the client, stays until the job has ended; Ctrl-C suspends it.
        Submissions with the same `request_id` start one job; None: a new id. With `alone` the cluster refuses
        it while another job writes one of the same outputs, with a sink of the same uid.
        """
        return self._start(name, savepoint, allow_non_restored_state, request_id, alone=alone)[0]

    def _start(
        self,
        name: str | None,
        savepoint: str | os.PathLike[str] | None,
        allow_non_restored: bool,
        request_id: str | None,
        bootstrap: BootstrapOrder | None = None,
        *,
        alone: bool = False,
    ) -> tuple[JobClient, Frames]:
        from unistream.client.job.submission import submit

        request, frames = self.submission(
            name,
            savepoint=savepoint,
            allow_non_restored_state=allow_non_restored,
            request_id=request_id,
            bootstrap=bootstrap,
            alone=alone,
        )
        with frames.kept():
            job = submit(request, target=self._target, config=self._config)
            frames.remove_after(job, target=self._target, config=self._config)
        return job, frames

    def submission(
        self,
        name: str | None = None,
        *,
        savepoint: str | os.PathLike[str] | None = None,
        allow_non_restored_state: bool = False,
        request_id: str | None = None,
        bootstrap: BootstrapOrder | None = None,
        alone: bool = False,
    ) -> tuple[SubmitRequest, Frames]:
        """What a cluster takes to start the job, and the staged rows of its DataFrames, which the caller
        closes when the job has ended. Arguments and errors as of `execute_async`."""
        from unistream.model.submission import SubmitRequest
        from unistream.worker.code import pack

        if savepoint is not None and not isinstance(savepoint, str | os.PathLike):
            raise ConfigError(f"savepoint is {savepoint!r}; it must be the path of a savepoint's directory")
        if savepoint == LATEST:
            savepoint = self.latest_snapshot(name)
        self.check_new_lines(savepoint=savepoint, request_id=request_id)
        graph, code, frames = self.staged_job_graph(name, bootstrap)
        for event, advice in self.advice(graph) if self._builder.look is None else ():
            _log.warning("event=%s job=%r: %s", event, graph.name, advice)
        with frames.kept():
            request = SubmitRequest(
                graph=graph,
                artifact=pack(code, with_modules=True),
                config=self.travelling(),
                savepoint=None if savepoint is None else os.fspath(savepoint),
                allow_non_restored=allow_non_restored_state,
                request_id=request_id,
                alone=alone,
                alone_in_line=savepoint is not None,
                pipeline=self.packed_pipeline(name),
            )
        return request, frames

    def advice(self, graph: JobGraph) -> list[tuple[str, str]]:
        """What a user should know before the job starts: names of events, and sentences. `graph`: of it."""
        written = self.stream_graph(graph.name)
        is_off = self._target != "remote" and self._config.find(CHECKPOINT_INTERVAL) is None
        found = {
            "checkpointing_is_off": commit_advice(written) if is_off else None,
            "operators_without_uid": graphs.uid_advice(graph),
            "rows_without_a_sink": dangling_advice(written),
            "rows_of_a_key_in_any_order": order_advice(written, self.parallelism),
        }
        return [(event, advice) for event, advice in found.items() if advice is not None]
