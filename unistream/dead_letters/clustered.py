"""A replay whose job runs in a cluster: what is done before that has it, in a process of its own.

    lock ─► earlier replays that are not done ─► choose letters ─► begin (durable) ─► the job, to be submitted

Its job lives on when this process and the JobManager that asked for it are gone. So what becomes of an
earlier replay is for the JobManager to say, which alone knows whether one of its jobs runs:

    finished                          it is noted as done
    no job of it runs, a checkpoint   goes on from there, as a further job
    none, and letters in `replayed`   it had ended
    none, and no letters there        it has committed nothing, and is withdrawn
"""

from __future__ import annotations

import msgspec
from msgspec import structs

from unistream.api.environment import Environment
from unistream.api.pipeline import Pipeline
from unistream.base import process_mark
from unistream.base.clock import SystemClock
from unistream.base.config import Configuration
from unistream.base.config_file import LayeredConfig
from unistream.base.errors import ConfigError
from unistream.base.object_stores import use_store
from unistream.dead_letters.corrections import corrections_of
from unistream.dead_letters.graph import append_everywhere
from unistream.dead_letters.ledger import Ledger, ReplayEnd, ReplayOrder, TableLock
from unistream.dead_letters.replay import Chosen, Replay
from unistream.dead_letters.table import absolute, letters_at
from unistream.model.letter_replays import (
    NothingToReplay,
    ReplayAnswer,
    ReplayOpen,
    ReplayPrepared,
    ReplayQuestion,
    replay_request,
)
from unistream.model.submission import SubmitRequest
from unistream.worker.code import open_pipeline, pack_with


def prepared(question: ReplayQuestion) -> ReplayAnswer:
    """Raises ConfigError, UserCodeError, Unreachable, CorruptSnapshot: nothing was begun."""
    use_store(Configuration(question.store))
    uri = absolute(question.table)
    with TableLock(uri):
        return _Prepared(question, uri).answer()


class _Prepared:
    """The replay that one question asks for, whose table is locked."""

    def __init__(self, question: ReplayQuestion, uri: str) -> None:
        pipeline, self._modules = open_pipeline(question.pipeline)
        if not isinstance(pipeline, Pipeline):
            raise ConfigError("what is kept of the job is no pipeline")
        append_everywhere(pipeline.graph)
        self._question = question
        self._replay = Replay(
            letters=letters_at(uri),
            ledger=Ledger(uri),
            environment=_environment(pipeline),
            pipeline=pipeline.graph.name,
            target="remote",
            from_empty_state=question.from_empty_state,
            corrections=corrections_of((one.letter, one.row, one.raw) for one in question.corrections),
        )

    def answer(self) -> ReplayAnswer:
        asked, ledger = self._question, self._replay.ledger
        for order in ledger.unfinished():
            replay = self._own(order)
            if replay.id in asked.finished:
                self._end(replay)
            elif replay.id not in asked.idle:
                return ReplayOpen(replay=replay.id)
            elif (checkpoint := ledger.newest_checkpoint(replay.id)) is not None:
                return self._prepared(replay, asked.idle[replay.id], checkpoint)
            elif ledger.is_noted(replay):
                self._end(replay)
            else:
                ledger.withdraw(replay)
        if ledger.has_ended(asked.id):
            raise ConfigError(f"replay {asked.id} has ended; choose a new trigger id for another one")
        chosen = Chosen(
            operator=asked.operator or None, error_type=asked.error_type or None, ids=asked.letters
        )
        begun = self._replay.begin(chosen, asked.id, cluster=asked.cluster, mark=asked.mark)
        if begun.order is None:
            return NothingToReplay(unread=begun.unread)
        return structs.replace(self._prepared(begun.order, 0, None), unread=begun.unread)

    def _own(self, order: ReplayOrder) -> ReplayOrder:
        """The order as one of this cluster; that of a cluster that is gone for good is taken over. Raises
        ConfigError: it is not for this cluster to say what happens to it."""
        if order.cluster == self._question.cluster:
            return order
        if not order.cluster:
            raise ConfigError(
                f"replay {order.id} of {order.letters} letters was begun by the command, on {order.host} "
                f"(process {order.pid}), and is not done: run the same command there"
            )
        if process_mark.runs(order.mark) is not False:
            raise ConfigError(
                f"replay {order.id} of {order.letters} letters was begun by cluster {order.cluster}, on "
                f"{order.host}, and is not done: let it end there"
            )
        taken = structs.replace(order, cluster=self._question.cluster, mark=self._question.mark)
        self._replay.ledger.take_over(taken)
        return taken

    def _end(self, order: ReplayOrder) -> None:
        self._replay.ledger.end(ReplayEnd(id=order.id, ended_ms=SystemClock().wall_ms()))

    def _prepared(self, order: ReplayOrder, attempt: int, checkpoint: str | None) -> ReplayPrepared:
        environment = self._replay.environment_of(order)
        environment.check_new_lines(savepoint=checkpoint)
        name = f"replay of {order.operator}"[:200]
        graph, code = environment.job_graph(name)
        submission = SubmitRequest(
            graph=graph,
            artifact=pack_with(code, self._modules),
            config=environment.travelling(),
            savepoint=checkpoint,
            request_id=replay_request(order.id, order.cluster, attempt),
            alone=True,  # another job that notes letters of this table was started by hand
            pipeline=self._question.pipeline,
        )
        return ReplayPrepared(
            replay=order.id,
            letters=order.letters,
            submission=msgspec.msgpack.encode(submission),
            goes_on=order.id != self._question.id or attempt > 0,
        )


def _environment(pipeline: Pipeline) -> Environment:
    """An environment that has the whole pipeline."""
    options = LayeredConfig(Configuration(pipeline.config))  # as it was submitted
    made, graph = Environment(options, target="remote"), pipeline.graph
    builder = made._builder
    builder.graph, builder.follows, builder.profiles = graph, dict(pipeline.follows), dict(graph.profiles)
    builder.registered = None if graph.registered_groups is None else set(graph.registered_groups)
    return made
