"""What becomes of one pipeline: a job that can be submitted as it is."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any

import msgspec
from msgspec import structs

from unistream.api.environment import Environment
from unistream.api.frames import frame_sources
from unistream.api.load import build, load_function
from unistream.base.config import Configuration
from unistream.base.config_file import LayeredConfig
from unistream.base.errors import ConfigError
from unistream.base.object_stores import use_store
from unistream.model.chain import JobCode
from unistream.model.graph import JobGraph
from unistream.model.pipeline_plans import PipelinePlanned, PlanQuestion
from unistream.model.submission import SubmitRequest
from unistream.savepoint.plan import plan
from unistream.savepoint.reading import read_savepoint
from unistream.worker.code import pack


def planned(question: PlanQuestion) -> PipelinePlanned:
    """Runs the user's code: in a process of its own.

    Raises:
        ConfigError, CorruptSnapshot, UserCodeError: it cannot be started so.
        Unreachable: its savepoint, or what it writes to, does not answer.
    """
    environment = _built(question)
    name = question.name
    for source in frame_sources(environment.stream_graph(name)):
        raise ConfigError(
            f"source {source!r} is a DataFrame, whose rows are kept by the program that starts the job: such "
            "a pipeline is started by 'unistream run'"
        )
    environment.check_new_lines(savepoint=question.savepoint)
    graph, code, _ = environment.staged_job_graph(name)
    submission = SubmitRequest(
        graph=graph,
        artifact=pack(code, with_modules=True),
        config=environment.travelling(),
        savepoint=question.savepoint,
        allow_non_restored=question.allow_non_restored,
        alone_in_line=question.savepoint is not None,
        given=question.config,
        pipeline=environment.packed_pipeline(name),
    )
    return PipelinePlanned(
        explained=msgspec.json.encode(environment.explain_json() | {"name": graph.name}),
        states=_states(question, environment, graph, code),
        advice=tuple(sentence for _, sentence in environment.advice(graph)),
        submission=msgspec.msgpack.encode(submission),
    )


def _built(question: PlanQuestion) -> Environment:
    """The environment with the whole pipeline; nothing that surrounds this process counts."""
    if question.folder not in sys.path:
        sys.path.insert(0, question.folder)
    environment = Environment(LayeredConfig(Configuration(question.config)), target="remote")
    function = load_function(question.entry_point, question.folder)
    build(_with_parameters(function, question.entry_point, question.parameters), environment)
    return environment


def _with_parameters(
    function: Callable[..., object], entry_point: str, parameters: Mapping[str, Any]
) -> Callable[[Environment], object]:
    """Raises ConfigError: the function does not take these."""
    if not parameters:
        return function
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # one in C has none, and says by itself what it lacks
        signature = None
    if signature is not None:
        try:
            signature.bind(None, **parameters)
        except TypeError as error:
            raise ConfigError(
                f"{entry_point}{signature} cannot be called with these parameters: {error}"
            ) from None
    made = partial(function, **parameters)
    return update_wrapper(made, function) if hasattr(function, "__name__") else made


def _states(question: PlanQuestion, environment: Environment, graph: JobGraph, code: JobCode) -> bytes:
    """JSON of the plan of its states; empty: it starts without a savepoint."""
    if question.savepoint is None:
        return b""
    use_store(Configuration(question.store))
    config = Configuration(question.recovery).merged(environment.config.to_dict())
    found = plan(
        read_savepoint(question.savepoint),
        graph,
        code,
        config,
        allow_non_restored=question.allow_non_restored,
    )
    return msgspec.json.encode(structs.asdict(found) | {"refused": found.is_refused})
