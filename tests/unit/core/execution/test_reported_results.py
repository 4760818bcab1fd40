"""When committables that tasks have reported can be read, and which tasks never run again."""

from __future__ import annotations

import pytest

from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, EdgeId, JobId, PartitionId, SubtaskId, VertexId
from unistream.core.execution.reported_results import ReportedResults
from unistream.core.graph import Link, Pattern, Topology
from unistream.model.messages import ReportedPartition
from unistream.model.partition_type import PartitionType

REPORTED, STORED = PartitionType.BLOCKING_REPORTED, PartitionType.BLOCKING


def results(*links: str) -> ReportedResults:
    """Vertices with two subtasks each; ``"w>c"`` is a reported link, ``"a-b"`` a stored one."""
    vertices = dict.fromkeys(name for link in links for name in (link[0], link[2]))
    return ReportedResults(
        Topology(
            [(VertexId(name), 2) for name in vertices],
            [
                Link(
                    id=EdgeId(link),
                    source=VertexId(link[0]),
                    target=VertexId(link[2]),
                    pattern=Pattern.POINTWISE,
                    partition=REPORTED if link[1] == ">" else STORED,
                )
                for link in links
            ],
        )
    )


def subtask(name: str) -> SubtaskId:
    """``"w0"``."""
    return SubtaskId(VertexId(name[0]), int(name[1:]))


def finish(found: ReportedResults, name: str, *edges: str, attempt: int = 0) -> list[str]:
    """It reports these edges and is FINISHED; the producers that have become readable."""
    one = subtask(name)
    partitions = [ReportedPartition(edge=EdgeId(edge), contents=(name.encode(),)) for edge in edges]
    failure = found.reported(AttemptId(JobId("j"), one.vertex, one.index, attempt), partitions)
    assert failure is None
    return [f"{producer.vertex}{producer.index}" for producer in found.finished(one)]


def partition(name: str, edge: str) -> PartitionId:
    return PartitionId(subtask(name), EdgeId(edge))


def test_what_is_reported_can_be_read_when_all_before_it_have_finished() -> None:
    found = results("w>c")
    assert finish(found, "w0", "w>c") == []
    assert found.exists(partition("w0", "w>c"))
    assert not found.is_readable(partition("w0", "w>c"))
    assert finish(found, "w1", "w>c") == ["w0", "w1"]
    assert found.content(partition("w1", "w>c"), 0) == b"w1"
    assert found.is_settled(subtask("w0"))
    assert not found.is_settled(subtask("c0"))


def test_another_branch_has_to_finish_too() -> None:
    found = results("w>c", "w-p")
    for name, edges in (("w0", ["w>c"]), ("w1", ["w>c"]), ("p0", [])):
        assert finish(found, name, *edges) == []
    assert finish(found, "p1") == ["w0", "w1"]


def test_a_task_that_will_run_again_takes_back_what_it_has_reported() -> None:
    found = results("w>c")
    finish(found, "w0", "w>c")
    found.will_restart([subtask("w0")])
    assert not found.exists(partition("w0", "w>c"))
    assert finish(found, "w1", "w>c") == []
    assert finish(found, "w0", "w>c", attempt=1) == ["w0", "w1"]


def test_what_follows_a_committer_waits_for_all_committers() -> None:
    found = results("w>c", "c>g")
    finish(found, "w0", "w>c")
    assert finish(found, "w1", "w>c") == ["w0", "w1"]
    assert finish(found, "c0", "c>g") == []
    assert not found.is_settled(subtask("c0"))
    assert finish(found, "c1", "c>g") == ["c0", "c1"]
    assert found.is_settled(subtask("c0"))


def test_a_settled_task_cannot_be_restarted() -> None:
    found = results("w>c")
    finish(found, "w0", "w>c")
    finish(found, "w1", "w>c")
    with pytest.raises(AssertionError, match="would run again after its level was sealed"):
        found.will_restart([subtask("w0")])


def test_committables_are_not_read_together_with_rows_that_could_be_lost() -> None:
    with pytest.raises(ConfigError, match=r"exchange 'a' -> 'c': .* reads no other rows"):
        results("w>c", "a-c")
