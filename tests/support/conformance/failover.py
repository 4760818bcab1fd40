"""What restarts after a failure, when, and the defaults of the options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any, Final

from tests.support.conformance.case import Case, Comparison, Json, Shape, entry
from tests.support.conformance.graphs import partition, subtask, texts, topology_of
from tests.support.conformance.prose import in_words
from unistream.base import config as options
from unistream.base.config import OPTIONS, Configuration
from unistream.base.ids import PartitionId, SubtaskId
from unistream.core.contract.settings import RestartBackoff
from unistream.core.execution import restart_backoff as rb
from unistream.core.execution.failover import create_failover
from unistream.core.graph.regions import build_regions
from unistream.model.execution_state import ExecutionState

_MIDDLE: Final = 0.5
DRAWS: Final = 1_000  # evenly over [0, 1): every value of a jitter of up to +-499 ms comes up
_GROUPS_OF_NAMES: Final = re.compile(r"^[\w-]+(\|[\w-]+)*(;\s*[\w-]+(\|[\w-]+)*)*$")
_UNSET: Final = r"(with|without) checkpointing(?: enabled)? -> ([\w-]+)(?: with defaults| \([\w ]+\))?"
_UNSET_DEFAULTS: Final = re.compile(rf"none set: {_UNSET}(?:; {_UNSET})*")
_NOTE: Final = re.compile(r"\s*\((?:infinite|other values?: ([\w, -]+))\)$")


# --- what restarts --------------------------------------------------------------------------------


class Job:
    """The job of a case; the view that a failover strategy reads."""

    def __init__(self, states: dict[SubtaskId, ExecutionState], lost: set[PartitionId]) -> None:
        self._states = states
        self._lost = lost

    def state(self, subtask: SubtaskId) -> ExecutionState:
        return self._states.get(subtask, ExecutionState.RUNNING)

    def is_available(self, partition: PartitionId) -> bool:
        return partition not in self._lost


def _failures(name: str, case: Json, _section: Any) -> Iterator[Case]:
    """Each failure is a case of its own, and so are the regions of the graph."""
    if "regions" in case:
        yield Case(f"{name}, regions", partial(_regions, case))
    for failure in case["failures"]:
        lost = failure.get("unavailablePartitions", [])
        words = [failure["failed"], failure.get("cause"), f"without {', '.join(lost)}" if lost else None]
        title = f"{name}, {'; '.join(word for word in words if word)}"
        yield Case(title, partial(_restarts, case, failure))


def _regions(case: Json) -> Comparison:
    actual = [texts(region.subtasks) for region in build_regions(topology_of(case))]
    return Comparison(sorted(sorted(members) for members in case["regions"]), sorted(actual))


def _restarts(case: Json, failure: Json) -> Comparison:
    topology = topology_of(case)
    strategy = create_failover(failure.get("strategy", "region"), build_regions(topology))
    view = Job(
        {subtask(name): ExecutionState[state] for name, state in case.get("states", {}).items()},
        {partition(name, topology) for name in failure.get("unavailablePartitions", [])},
    )
    _, on, lost = failure.get("cause", "").rpartition(" on ")
    found = strategy.tasks_to_restart(
        subtask(failure["failed"]), partition(lost, topology) if on else None, view
    )
    return Comparison(sorted(failure["restarts"]), texts(found))


# --- backoff --------------------------------------------------------------------------------------


def _backoff(strategy: str, params: Json, draw: rb.Draw) -> RestartBackoff:
    if strategy in rb.EXPONENTIAL_DELAY:
        return rb.ExponentialDelay(
            initial_ms=params["initialBackoffMs"],
            max_ms=params["maxBackoffMs"],
            multiplier=params["backoffMultiplier"],
            reset_ms=params.get("resetBackoffThresholdMs", rb.UNLIMITED),
            jitter=params["jitterFactor"],
            attempts_max=params.get("attemptsBeforeResetBackoff", rb.UNLIMITED),
            draw=draw,
        )
    if strategy in rb.FIXED_DELAY:
        return rb.FixedDelay(attempts_max=params["attempts"], delay_ms=params["delayMs"])
    if strategy in rb.FAILURE_RATE:
        return rb.FailureRate(
            failures_max=params["maxFailuresPerInterval"],
            interval_ms=params["failuresIntervalMs"],
            delay_ms=params["delayMs"],
        )
    assert strategy in rb.NONE or strategy == "no-restart", f"no such strategy: {strategy}"
    return rb.NoRestart()


def _timeline(case: Json) -> Comparison:
    backoff = _backoff(case["strategy"], case.get("params", {}), lambda: _MIDDLE)
    actual = []
    for event in case["timeline"]:
        now_ms = event["t"]
        new_attempt = backoff.notify_failure(now_ms)
        actual.append(
            {
                "t": now_ms,
                "newAttempt": new_attempt,
                "canRestart": backoff.can_restart,
                "backoffMs": backoff.backoff_ms(now_ms),
            }
        )
    expected = case["timeline"]
    return Comparison(expected, [{k: a[k] for k in e} for e, a in zip(expected, actual, strict=True)])


def _jitter(case: Json) -> Comparison:
    """All waits that come up after the n-th failure, over even draws; failures max + 1 ms apart."""
    expected = {int(n): sorted(waits) for n, waits in case["allowedBackoffAfterNthFailure"].items()}
    seen: dict[int, set[int]] = {n: set() for n in expected}
    for number in range(DRAWS):
        backoff = _backoff("exponential-delay", case["params"], repeat(number / DRAWS).__next__)
        for n in range(1, max(expected) + 1):
            now_ms = n * (case["params"]["maxBackoffMs"] + 1)
            backoff.notify_failure(now_ms)
            if n in seen:
                seen[n].add(backoff.backoff_ms(now_ms))
    return Comparison(expected, {n: sorted(waits) for n, waits in seen.items()})


# --- defaults -------------------------------------------------------------------------------------


def _default(case: Json) -> Comparison:
    """An option's default by its key; names of a strategy; or what follows from an option that is unset."""
    key, default = case["key"], case["default"]
    text = default if isinstance(default, str) else repr(default)
    if key == options.RESTART_STRATEGY.key and _UNSET_DEFAULTS.fullmatch(text):
        unset = dict(re.findall(_UNSET, text))
        return Comparison({how: _kind(name) for how, name in unset.items()}, _kinds_when_unset())
    if key in OPTIONS:
        option = OPTIONS[key]
        note = _NOTE.search(text)
        others = re.split(r",\s*", note[1]) if note is not None and note[1] else []
        value = option.parse(_NOTE.sub("", text))
        allowed = [option.parse(other) for other in others]
        default = None if option.default is None else option.parse(option.default)
        return Comparison([value, allowed], [default, [_other(option.key, other) for other in others]])
    if "." in key:
        return Comparison(default, f"there is no option {key}")
    if "|" in text and _GROUPS_OF_NAMES.match(text):
        groups = [group.strip().split("|") for group in text.split(";")]
        return Comparison([1] * len(groups), [len({_kind(name) for name in group}) for group in groups])
    raise in_words("configurationDefaults", key)


def _other(key: str, value: str) -> object:
    """Another value of the option, as a configuration with it reads it."""
    return Configuration({key: value}).get(OPTIONS[key])


def _kind(name: str) -> str:
    """Which strategy the option's value `name` makes."""
    config = Configuration({options.RESTART_STRATEGY.key: name})
    return type(rb.restart_backoff_from_config(config, lambda: _MIDDLE)).__name__


def _kinds_when_unset() -> dict[str, str]:
    with_it = Configuration({options.CHECKPOINT_INTERVAL.key: "1 s"})
    return {
        how: type(rb.restart_backoff_from_config(config, lambda: _MIDDLE)).__name__
        for how, config in (("with", with_it), ("without", Configuration()))
    }


SHAPES: Final[tuple[Shape, ...]] = (
    Shape("cases", frozenset({"vertices", "edges", "failures"}), _failures),
    entry("restartBackoff", "strategy", "timeline", play=_timeline),
    entry("exponentialJitter", "params", "allowedBackoffAfterNthFailure", play=_jitter),
    entry("configurationDefaults", "key", "default", play=_default),
)
