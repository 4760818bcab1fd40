"""How a worker's memory is divided: Flink's rules, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.limits import GIB, MIB
from unistream.core.memory import describe_bytes, memory_plan
from unistream.core.memory.division import MemoryPlan

PREFIX = "taskmanager.memory."


def plan(slots: int = 1, **options: str) -> MemoryPlan:
    keys = {PREFIX + key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    return memory_plan(Configuration(keys), slots)


def test_the_default_is_that_of_flinks_own_configuration() -> None:
    default = plan()
    assert default.process == 1728 * MIB
    assert default.overhead == 192 * MIB  # a tenth would be less than the least
    assert default.flink == 1536 * MIB
    assert default.framework == 256 * MIB
    assert default.network == 1536 * MIB // 10
    assert default.managed == int(1536 * MIB * 0.4)
    assert (
        default.process
        == default.framework + default.task + default.network + default.managed + default.overhead
    )


def test_slots_share_what_tasks_use() -> None:
    whole, slot = plan(4), plan(4).slot
    assert (slot.task, slot.network, slot.managed) == (
        whole.task // 4,
        whole.network // 4,
        whole.managed // 4,
    )


def test_the_memory_of_flink_leaves_the_process_to_be_derived() -> None:
    derived = plan(flink_size="9 gb")
    assert derived.flink == 9 * GIB
    assert derived.overhead == GIB  # a tenth of ten
    assert derived.process == 10 * GIB


def test_task_and_managed_memory_leave_all_the_rest_to_be_derived() -> None:
    derived = plan(task_heap_size="1 gb", managed_size="1 gb")
    assert (derived.task, derived.managed) == (GIB, GIB)
    assert derived.network == int((2 * GIB + 256 * MIB) * 0.1 / 0.9)
    assert derived.overhead == int(derived.flink * 0.1 / 0.9)


def test_task_memory_in_a_given_whole_leaves_the_network_the_rest() -> None:
    derived = plan(flink_size="2 gb", task_heap_size="600 mb", managed_fraction="0.5")
    assert derived.managed == GIB
    assert derived.network == 2 * GIB - GIB - 856 * MIB
    assert plan(process_size="4 gb", flink_size="3500 mb").overhead == (4096 - 3500) * MIB


def test_off_heap_memory_of_tasks_is_theirs_too() -> None:
    assert plan(task_off__heap_size="64 mb").task == plan().task
    assert plan(task_heap_size="1 gb", task_off__heap_size="1 gb", managed_size="0").task == 2 * GIB


@pytest.mark.parametrize(
    ("options", "named"),
    [
        pytest.param(
            {"process_size": "100 mb"}, ["process.size = 100 mb", "192 mb"], id="less than the overhead"
        ),
        pytest.param(
            {"process_size": "600 mb"},
            ["process.size = 600 mb minus 192 mb", "framework.heap.size = 128 mb", "network memory 64 mb"],
            id="less than its parts",
        ),
        pytest.param(
            {"managed_size": "2 gb"},
            ["process.size = 1728 mb (default)", "managed.size = 2 gb"],
            id="the default too",
        ),
        pytest.param(
            {"flink_size": "1 gb", "task_heap_size": "600 mb", "managed_size": "600 mb"},
            ["task.heap.size = 600 mb", "managed.size = 600 mb", "flink.size = 1 gb", "by 432 mb"],
            id="parts above the whole",
        ),
        pytest.param(
            {"flink_size": "1 gb", "task_heap_size": "600 mb", "managed_size": "160 mb"},
            ["network memory is 8 mb", "network.min is 64 mb"],
            id="no network memory left",
        ),
        pytest.param(
            {"flink_size": "2 gb", "process_size": "2100 mb"},
            ["process.size = 2100 mb", "overhead is 52 mb", "jvm-overhead.min is 192 mb"],
            id="no overhead left",
        ),
        pytest.param(
            {"flink_size": "2 gb", "process_size": "2 gb", "task_heap_size": "1 gb", "managed_size": "2 gb"},
            ["task.heap.size = 1 gb", "managed.size = 2 gb", "flink.size = 2 gb"],
            id="everything at once",
        ),
        pytest.param(
            {"network_min": "2 gb", "network_max": "1 gb"},
            ["network.min = 2 gb", "above", "network.max = 1 gb"],
            id="a range upside down",
        ),
        pytest.param(
            {"task_heap_size": "1 gb", "managed_size": "1 gb", "network_fraction": "1"},
            ["network.fraction is 1"],
            id="a fraction that leaves nothing",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name_and_value(
    options: dict[str, str], named: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        plan(**options)
    for part in named:
        assert part in str(refused.value)


SIZE = st.one_of(st.none(), st.integers(0, 8192).map(lambda n: f"{n} mb"))


@given(process=SIZE, flink=SIZE, task=SIZE, managed=SIZE, slots=st.integers(1, 64))
def test_a_plan_that_is_made_adds_up(
    process: str | None, flink: str | None, task: str | None, managed: str | None, slots: int
) -> None:
    options = {"process_size": process, "flink_size": flink, "task_heap_size": task, "managed_size": managed}
    given_options = {key: value for key, value in options.items() if value is not None}
    try:
        made = plan(slots, **given_options)
    except ConfigError:
        return
    for part, size, share in made.rows():
        assert 0 <= share * slots <= size, part
    assert made.network >= 64 * MIB
    assert 192 * MIB <= made.overhead <= GIB
    wanted = {"process": process, "flink": flink, "task": task, "managed": managed}
    have = {part: size for part, size, _ in made.rows()}
    for part, text in wanted.items():
        if text is not None:
            assert have[part] == int(text.split()[0]) * MIB


def test_sizes_in_words() -> None:
    assert [describe_bytes(n) for n in (GIB, 64 * MIB, 1536 * MIB, int(1.5 * MIB), 10, 0)] == [
        "1 gb", "64 mb", "1536 mb", "1.50 mb", "10 b", "0 b",
    ]  # fmt: skip
