"""The context of each operator of a task, and the state that it starts from."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from unistream.base.config import (
    ALLOW_PICKLED_STATE,
    PARTITION_REQUEST_TIMEOUT,
    STATE_BACKEND,
    Configuration,
)
from unistream.base.errors import ConfigError, Transient
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.model.deployment import TaskDeployment
from unistream.model.key_groups import key_group_range
from unistream.model.messages import CommitReported
from unistream.model.snapshot import OperatorRestore, OperatorState
from unistream.port.operator import OperatorContext
from unistream.port.sorting import RowSorter
from unistream.port.state import KeyedStateBackend
from unistream.port.storage import StateReader
from unistream.state.backends import IN_MEMORY, ON_DISK, make_backend
from unistream.state.common import read_operator_state
from unistream.worker.exchange import InputGates, LocalInputChannel, OutputPartition
from unistream.worker.sort import KeySorter
from unistream.worker.task.background import BackgroundWork
from unistream.worker.task.chain import ErrorBoundary
from unistream.worker.task.environment import Doing, OperatorMetrics, TaskCounters, TaskEnvironment
from unistream.worker.task.mailbox import Mailbox
from unistream.worker.task.timers import TaskTimers

RESTORED_BYTES: Final = "RestoredStateSizeBytes"

_log = logging.getLogger(__name__)


class FencedTimers:
    """`port.operator.ProcessingTimers` of one operator: an error of an action names the operator."""

    def __init__(
        self, timers: TaskTimers, uid: OperatorUid, call: Callable[[Callable[[], None]], None]
    ) -> None:
        self._timers = timers
        self._uid = uid
        self._call = call

    def now_ms(self) -> int:
        return self._timers.now_ms()

    def register(self, at_ms: int, action: Callable[[int], None]) -> None:
        self._timers.register(at_ms, lambda fired_ms: self._call(partial(action, fired_ms)), self._uid)


class ContextFactory:
    """Contexts and restored state of the operators of one task."""

    def __init__(
        self,
        deployment: TaskDeployment,
        environment: TaskEnvironment,
        counters: TaskCounters,
        partitions: Sequence[OutputPartition],
        mailbox: Mailbox,
        *,
        memory_users: Collection[OperatorUid],
    ) -> None:
        self._partitions = partitions
        self._mailbox = mailbox
        self.background = BackgroundWork(environment.commits or environment.executor, mailbox)
        self._memory_users = memory_users
        self._managed_bytes = environment.managed_memory // max(1, len(memory_users))
        self._deployment = deployment
        self._environment = environment
        self.counters = counters
        self.timers = TaskTimers(environment.clock)
        self._restored = _has_state(deployment)
        self._reader: StateReader | None = None

    def context_of(self, uid: OperatorUid, name: str, call: ErrorBoundary) -> OperatorContext:
        """The context of one operator. `call` runs its callbacks inside its fence."""
        deployment = self._deployment
        vertex = deployment.vertex
        index = deployment.attempt.index
        return OperatorContext(
            job=deployment.attempt.job,
            job_name=deployment.job_name,
            lineage=deployment.lineage,
            epoch=deployment.epoch,
            attempt=deployment.attempt,
            uid=uid,
            name=name,
            index=index,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            key_groups=key_group_range(vertex.max_parallelism, vertex.parallelism, index),
            restored=self._restored,
            checkpointing=deployment.checkpointing,
            exclusive=self._environment.exclusive,
            clock=self._environment.clock,
            timers=FencedTimers(self.timers, uid, call),
            metrics=OperatorMetrics(self.counters, name),
            make_sorter=partial(self._make_sorter, uid),
            make_state=cache(partial(self._make_state, uid)),
            managed_memory_bytes=self._managed_bytes if uid in self._memory_users else 0,
            tmp_dir=self._environment.tmp_dir,
            await_room=self._await_room,
            run_in_background=self.background.runner(call),
            report_commit=self._report_commit,
            config=dict(deployment.config),
        )

    def state_of(self, uid: OperatorUid) -> OperatorState:
        """What one operator restores from; reads its files.

        Raises:
            CorruptSnapshot: a file is missing or damaged.
        """
        restore = self._deployment.restore
        if restore is None:
            return OperatorState()
        share = restore.operators.get(uid, OperatorRestore())
        if self._reader is None:
            self._reader = self._environment.state_reader(restore.root)
        folder = self._local_folder() if share.native else None
        state = read_operator_state(share, restore.checkpoint_id, self._reader, folder)
        return replace(state, job=restore.job, directory=restore.root)

    def note_restored(self) -> None:
        """Counts the bytes that were read of the snapshot, under Flink's name (FLIP-386): a backend's own
        files are read whole, even if only a part of their key groups is needed."""
        if self._reader is not None:
            self.counters.user[RESTORED_BYTES] = self._reader.bytes_read
            _log.info(
                "event=state_restored attempt=%s bytes=%d", self._deployment.attempt, self._reader.bytes_read
            )

    def _make_state(self, uid: OperatorUid) -> KeyedStateBackend:
        """The configured backend, with a folder that no other attempt has."""
        self._check_user(uid)
        attempt, vertex = self._deployment.attempt, self._deployment.vertex
        options = Configuration(self._deployment.config)
        kind = IN_MEMORY if vertex.offloaded else options.get(STATE_BACKEND)
        place = hashlib.sha256(f"{attempt}/{uid}".encode()).hexdigest()[:32]
        return make_backend(
            kind,
            key_groups=key_group_range(vertex.max_parallelism, vertex.parallelism, attempt.index),
            max_parallelism=vertex.max_parallelism,
            folder=self._local_folder() / place if kind in ON_DISK else None,
            clock=self._environment.clock,
            memory_bytes=self._managed_bytes,
            allow_pickled=options.get(ALLOW_PICKLED_STATE),
            config=options,
            parallelism=vertex.parallelism,
        )

    def _make_sorter(self, uid: OperatorUid, keys: Sequence[str]) -> RowSorter:
        self._check_user(uid)
        place = hashlib.sha256(f"{self._deployment.attempt}/{uid}/sort".encode()).hexdigest()[:32]
        return KeySorter(keys, self._local_folder() / place, self._managed_bytes)

    def _check_user(self, uid: OperatorUid) -> None:
        if uid not in self._memory_users:
            raise ConfigError(
                f"operator {uid!r} keeps state or sorts rows: its class has to set uses_managed_memory = True"
            )

    def _local_folder(self) -> Path:
        if self._environment.state_folder is not None:
            return self._environment.state_folder()
        return Path(self._environment.tmp_dir or tempfile.gettempdir())

    def watch_partition_requests(self, inputs: InputGates) -> None:
        """Fails the task when a partition of this process is late. (`net` has the same limit.)"""
        local = [channel for channel in inputs.channels if isinstance(channel, LocalInputChannel)]
        if all(channel.is_attached for channel in local):
            return
        timeout_ms = Configuration(self._deployment.config).get(PARTITION_REQUEST_TIMEOUT)

        def check(_at_ms: int) -> None:
            for channel in local:
                channel.require_attached()

        self.timers.register(self.timers.now_ms() + timeout_ms, check)

    def _await_room(self) -> None:
        """Blocks the task's thread while an output is full, as Flink's emit does. Where one thread drives
        several tasks, no other task could free room, so it never waits there.

        Raises:
            Transient: the task is cancelled.
        """
        if self._mailbox.is_cancelled:
            raise Transient("cancelled while it processed its rows")
        if not self._environment.may_block or all(p.has_room for p in self._partitions):
            return
        clock = self._environment.clock
        self.counters.turn_to(Doing.BACKPRESSURED, clock.monotonic_ms())
        while True:
            self._mailbox.prepare_wait()
            if self._mailbox.is_cancelled:
                raise Transient("cancelled while waiting for room in its outputs")
            if all(p.has_room for p in self._partitions):
                break
            self._mailbox.wait(None)
        self.counters.turn_to(Doing.BUSY, clock.monotonic_ms())

    def _report_commit(
        self,
        sink_uid: OperatorUid,
        checkpoint_id: CheckpointId,
        rows: int,
        table_version: int | None,
        /,
        *,
        already: bool,
        table_rows: int | None,
        watermark: int | None,
    ) -> None:
        self._environment.report(
            CommitReported(
                attempt=self._deployment.attempt,
                sink_uid=sink_uid,
                checkpoint_id=checkpoint_id,
                rows=rows,
                table_version=table_version,
                already=already,
                table_rows=table_rows,
                watermark=watermark,
            )
        )


def _has_state(deployment: TaskDeployment) -> bool:
    """Any operator of this task has something to restore."""
    restore = deployment.restore
    if restore is None:
        return False
    return any(
        any(share.stop > share.start for share in operator.keyed)
        or any(share.stop > share.start for share in operator.lists)
        or operator.native
        for operator in restore.operators.values()
    )
