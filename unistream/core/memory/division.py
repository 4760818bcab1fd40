"""How the memory of a worker is divided, by Flink's rules (FLIP-49): pure.

    process ┬ overhead                the interpreter, its libraries, threads, slack of allocators
            └ flink ┬ framework       the worker itself
                    ├ task            user code, and what operators hold while they work
                    ├ network         batches that wait between tasks: counted and bounded
                    └ managed         what operators may use before they spill

One of three determines the total: process.size, flink.size, or task.heap.size with managed.size. What is not
set is derived; values that contradict each other are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unistream.base import config as options
from unistream.base.config import ConfigOption, Configuration
from unistream.base.errors import ConfigError
from unistream.base.limits import MIB

PROCESS_DEFAULT: Final = 1728 * MIB  # as in the configuration that Flink is shipped with
_UNLIMITED: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotMemory:
    """The share of one slot in bytes: an equal part, rounded down."""

    task: int
    network: int
    managed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes of one worker: process = framework + task + network + managed + overhead."""

    framework: int
    task: int
    network: int
    managed: int
    overhead: int
    slots: int

    @property
    def flink(self) -> int:
        return self.framework + self.task + self.network + self.managed

    @property
    def process(self) -> int:
        """The total: what a container or a host has to provide."""
        return self.flink + self.overhead

    @property
    def slot(self) -> SlotMemory:
        return SlotMemory(
            task=self.task // self.slots,
            network=self.network // self.slots,
            managed=self.managed // self.slots,
        )

    def in_words(self) -> str:
        """The division in one line for a log: ``process=1728 mb flink=1536 mb …``."""
        return " ".join(f"{part}={describe_bytes(size)!r}" for part, size, _ in self.rows())

    def rows(self) -> tuple[tuple[str, int, int], ...]:
        """(part, bytes of the worker, bytes of a slot; 0 where slots have no share), outermost first."""
        slot = self.slot
        return (
            ("process", self.process, 0),
            ("flink", self.flink, 0),
            ("framework", self.framework, 0),
            ("task", self.task, slot.task),
            ("network", self.network, slot.network),
            ("managed", self.managed, slot.managed),
            ("overhead", self.overhead, 0),
        )


def memory_plan(config: Configuration, slots: int) -> MemoryPlan:
    """The plan of a worker with `slots` slots.

    Raises:
        ConfigError: options contradict each other; names them and their values.
    """
    given = _ConfiguredSizes(config)
    if given.task is not None and given.managed is not None:
        network = _network_for(given, given.fixed + given.task + given.managed)
        return _with_overhead(given, given.task, network, given.managed, slots)
    flink, named = given.flink, given.text(options.MEMORY_FLINK)
    if flink is None:
        process = given.process if given.process is not None else PROCESS_DEFAULT
        overhead = given.overhead.of(process)
        flink = process - overhead
        named = f"{_process_text(given)} minus {describe_bytes(overhead)} of overhead"
        _refuse(flink < 0, f"{named} leaves nothing for the worker: raise {options.MEMORY_PROCESS.key}")
    managed = given.managed if given.managed is not None else int(flink * given.managed_fraction)
    if given.task is None:
        network = given.network.of(flink)
        task = flink - given.fixed - managed - network
        _refuse(task < 0, _too_much(given, named, managed, network))
        return _with_overhead(given, task, network, managed, slots)
    network = flink - given.fixed - given.task - managed
    _refuse(network < 0, _too_much(given, named, managed, None))
    given.network.check(network, f"what {named} leaves for the network memory")
    return _with_overhead(given, given.task, network, managed, slots)


def describe_bytes(size: int) -> str:
    """A size as in a configuration: whole units, or MiB with two digits."""
    for unit, name in ((1024 * MIB, "gb"), (MIB, "mb")):
        if size and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size / MIB:.2f} mb" if size >= MIB // 16 else f"{size} b"


class _Range:
    """A share of a whole, within a minimum and a maximum."""

    def __init__(
        self,
        config: Configuration,
        fraction: ConfigOption[float],
        least: ConfigOption[int],
        most: ConfigOption[int],
    ) -> None:
        self.fraction, self.least, limit = config.get(fraction), config.get(least), config.find(most)
        self.most = _UNLIMITED if limit is None else limit
        self._fraction_key, self._least_key, self._most_key = fraction.key, least.key, most.key
        _refuse(
            self.least > self.most,
            f"{least.key} = {describe_bytes(self.least)} is above {most.key} = {describe_bytes(self.most)}",
        )

    def of(self, whole: int) -> int:
        return self._clamped(int(whole * self.fraction))

    def added_to(self, rest: int) -> int:
        """The share of a whole of which `rest` is the other part."""
        _refuse(
            self.fraction >= 1, f"{self._fraction_key} is {self.fraction:g}: it leaves nothing for the rest"
        )
        return self._clamped(int(rest * self.fraction / (1 - self.fraction)))

    def check(self, size: int, what: str) -> None:
        if not self.least <= size <= self.most:
            key, limit = (self._least_key, self.least) if size < self.least else (self._most_key, self.most)
            raise ConfigError(
                f"{what} is {describe_bytes(size)}, but {key} is {describe_bytes(limit)}: change one of them"
            )

    def _clamped(self, size: int) -> int:
        return max(self.least, min(self.most, size))


class _ConfiguredSizes:
    """The configured values, and defaults."""

    def __init__(self, config: Configuration) -> None:
        self._config = config
        self.process = config.find(options.MEMORY_PROCESS)
        self.flink = config.find(options.MEMORY_FLINK)
        self.framework = config.get(options.MEMORY_FRAMEWORK_HEAP) + config.get(
            options.MEMORY_FRAMEWORK_OFF_HEAP
        )
        self.task_off_heap = config.get(options.MEMORY_TASK_OFF_HEAP)
        self.task = config.find(options.MEMORY_TASK_HEAP)
        self.managed = config.find(options.MEMORY_MANAGED)
        self.managed_fraction = config.get(options.MEMORY_MANAGED_FRACTION)
        self.network = _Range(
            config, options.MEMORY_NETWORK_FRACTION, options.MEMORY_NETWORK_MIN, options.MEMORY_NETWORK_MAX
        )
        self.overhead = _Range(
            config, options.MEMORY_OVERHEAD_FRACTION, options.MEMORY_OVERHEAD_MIN, options.MEMORY_OVERHEAD_MAX
        )

    @property
    def fixed(self) -> int:
        """Parts that are never derived."""
        return self.framework + self.task_off_heap

    def text(self, option: ConfigOption[int]) -> str:
        """``key = value``."""
        value = self._config.find(option)
        return option.key if value is None else f"{option.key} = {describe_bytes(value)}"


def _network_for(given: _ConfiguredSizes, rest: int) -> int:
    """Network memory where task and managed memory are given (`rest`: all else of flink.size)."""
    if given.flink is None:
        return given.network.added_to(rest)
    parts = f"{given.text(options.MEMORY_TASK_HEAP)} and {given.text(options.MEMORY_MANAGED)}"
    network = given.flink - rest
    _refuse(
        network < 0,
        f"{parts} with {describe_bytes(given.fixed)} of framework and task.off-heap memory exceed "
        f"{given.text(options.MEMORY_FLINK)} by {describe_bytes(-network)}",
    )
    given.network.check(
        network, f"what {given.text(options.MEMORY_FLINK)} leaves after {parts} for network memory"
    )
    return network


def _with_overhead(given: _ConfiguredSizes, task: int, network: int, managed: int, slots: int) -> MemoryPlan:
    flink = given.fixed + task + network + managed
    if given.process is None and (
        given.flink is not None or (given.managed is not None and given.task is not None)
    ):
        overhead = given.overhead.added_to(flink)
    else:
        process = given.process if given.process is not None else PROCESS_DEFAULT
        overhead = process - flink
        _refuse(
            overhead < 0,
            f"{_process_text(given)} is {describe_bytes(-overhead)} less than its parts need: "
            f"{_parts(given, network, managed)}, task {describe_bytes(task)}",
        )
        given.overhead.check(
            overhead, f"what {_process_text(given)} leaves after {describe_bytes(flink)} for the overhead"
        )
    return MemoryPlan(
        framework=given.framework,
        task=task + given.task_off_heap,
        network=network,
        managed=managed,
        overhead=overhead,
        slots=slots,
    )


def _too_much(given: _ConfiguredSizes, whole: str, managed: int, network: int | None) -> str:
    task = "" if given.task is None else f", {given.text(options.MEMORY_TASK_HEAP)}"
    return f"{whole} is too little for its parts: {_parts(given, network, managed)}{task}"


def _parts(given: _ConfiguredSizes, network: int | None, managed: int) -> str:
    shown = [
        given.text(options.MEMORY_FRAMEWORK_HEAP),
        given.text(options.MEMORY_FRAMEWORK_OFF_HEAP),
        given.text(options.MEMORY_TASK_OFF_HEAP),
    ]
    if given.managed is None:
        shown.append(f"managed memory {describe_bytes(managed)} ({options.MEMORY_MANAGED_FRACTION.key})")
    else:
        shown.append(given.text(options.MEMORY_MANAGED))
    if network is not None:
        shown.append(
            f"network memory {describe_bytes(network)} ({options.MEMORY_NETWORK_FRACTION.key}, .min, .max)"
        )
    return ", ".join(shown)


def _process_text(given: _ConfiguredSizes) -> str:
    if given.process is None:
        return f"{options.MEMORY_PROCESS.key} = {describe_bytes(PROCESS_DEFAULT)} (default)"
    return given.text(options.MEMORY_PROCESS)


def _refuse(wrong: bool, why: str) -> None:
    if wrong:
        raise ConfigError(why)
