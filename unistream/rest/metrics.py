"""Counters of a vertex as Flink shows them: of each subtask, and over its subtasks.

    /jobs/ID/vertices/V/metrics            [{"id": "0.per_shop.numLateRecordsDropped"}]
    …?get=A,B                              [{"id": A, "value": "3"}]; values are text
    /jobs/ID/vertices/V/subtasks/metrics   the same without the number; with get: min, max, avg, sum

Unknown names, and all names of an unknown vertex, are left out. The counters are those of the current
attempts and begin at zero with each, as Flink's do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

from fastapi import APIRouter, Response

from unistream.base.ids import JobId
from unistream.master.cluster import Dispatcher
from unistream.model.counter_names import parted
from unistream.model.job_info import SubtaskInfo
from unistream.rest.answers import json_answer
from unistream.rest.requests import job_id

_REPLACED: Final = str.maketrans(" .:,", "____")  # in names of operators: a dot parts a name from a metric


class MetricsApi:
    """The handlers of a vertex's counters."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/jobs/{id_}/vertices/{vertex}/metrics")(self.of_subtasks)
        router.get("/jobs/{id_}/vertices/{vertex}/subtasks/metrics")(self.aggregated)

    def of_subtasks(self, id_: str, vertex: str, get: str | None = None) -> Response:
        values = {
            f"{subtask.index}.{name}": value
            for subtask in self._subtasks(job_id(id_), vertex)
            for name, value in counters(subtask).items()
        }
        if get is None:
            return json_answer([{"id": name} for name in values])
        return json_answer([{"id": name, "value": str(values[name])} for name in _asked(get, values)])

    def aggregated(self, id_: str, vertex: str, get: str | None = None) -> Response:
        values: defaultdict[str, list[int]] = defaultdict(list)
        for subtask in self._subtasks(job_id(id_), vertex):
            for name, value in counters(subtask).items():
                values[name].append(value)
        if get is None:
            return json_answer([{"id": name} for name in values])
        return json_answer([{"id": name, **_spread(values[name])} for name in _asked(get, values)])

    def _subtasks(self, job: JobId, vertex: str) -> list[SubtaskInfo]:
        return [s for s in self._dispatcher.job(job).subtasks if s.vertex == vertex.lower()]


def counters(subtask: SubtaskInfo) -> dict[str, int]:
    """A subtask's counters by the names that Flink gives them; those of operators and users as
    ``Operator_name.counter``, added up over operators of which Flink would make one name."""
    metrics = subtask.metrics
    named: Counter[str] = Counter()
    for name, value in metrics.user.items():
        named[_id(name)] += value
    return {
        "numRecordsIn": metrics.records_in,
        "numRecordsOut": metrics.records_out,
        "busyTimeMsPerSecond": metrics.busy_per_s,
        "backPressuredTimeMsPerSecond": metrics.backpressured_per_s,
        "idleTimeMsPerSecond": metrics.idle_per_s,
        **named,
    }


def _id(name: str) -> str:
    one = parted(name)
    kind, dot, split = one.counter.partition(".")
    counter = f"{kind}{dot}{split.translate(_REPLACED)}"
    return f"{one.operator.translate(_REPLACED)}.{counter}" if one.operator else counter


def _asked(get: str, values: Iterable[str]) -> list[str]:
    known = set(values)
    return [name for name in get.split(",") if name in known]


def _spread(values: list[int]) -> dict[str, Any]:
    total = sum(values)
    return {"min": min(values), "max": max(values), "avg": total / len(values), "sum": total}
