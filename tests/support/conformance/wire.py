"""The output of a task: the wire events of the life cycles.

The words of a case name the task and its end; its `output` is a pattern over the elements that the task
wrote. Words instead of elements are listed, with the test of ours that shows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import Any, Final

from tests.support.conformance.case import Case, Comparison, Json, Shape, skipped
from tests.support.conformance.graphs import edge, graph_of, vertex
from tests.support.conformance.prose import in_words
from tests.support.conformance.recorded_job import (
    LAST_WORDS,
    SCRIPTED,
    RecordedJob,
    Recording,
    ScriptedSource,
    node,
    source_node,
    stopped_after_s1_ended,
    to,
)
from tests.support.harness.task import TaskJob
from unistream.base.ids import CheckpointId, SubtaskId, VertexId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.chain import Chain
from unistream.model.elements import Batch, CheckpointBarrier, Element, EndOfData, EndOfPartition, Watermark
from unistream.model.snapshot import TaskRestore
from unistream.model.snapshot_kind import SnapshotKind
from unistream.worker.exchange.partition import ResultPartition

SAME_AS_INPUT: Final = "same order as its input"
_ITEM: Final = re.compile(
    r"(?P<name>data|records of finish\(\)|Watermark\(MAX\)|EndOfData(?:\((?:NO_)?DRAIN\))?|EndOfPartition"
    r"|(?:CheckpointB|b)arrier\((?P<id>\d+|n|sp|savepoint)\))(?P<times>[*+]?)"
    r"(?:\s+\((?P<count>\d+) queued elements per output\))?"
)


# --- what a task has written ----------------------------------------------------------------------


def written(recorded: RecordedJob, task: str) -> list[str]:
    """The output of a task so far; the test is its consumer, so the real one must not run."""
    return _written(recorded.job, task)


def _written(job: TaskJob, task: str) -> list[str]:
    partition = job.task(task).partitions[0]
    assert isinstance(partition, ResultPartition), "a stream"
    subpartition = partition.subpartition(0)
    assert subpartition is not None
    names = []
    while (element := subpartition.poll()) is not None:
        if not _is_timer_watermark(element):
            names.append(_wire_name(element))
    return names


def _is_timer_watermark(element: Element) -> bool:
    return isinstance(element, Watermark) and element.timestamp != MAX_WATERMARK


def _wire_name(element: Element) -> str:
    match element:
        case Batch(records=records):
            last = set(records.column("v").to_pylist()) <= set(LAST_WORDS.values())
            return "records of finish()" if last else "data"
        case Watermark():
            return "Watermark(MAX)"
        case EndOfData(drain=drain):
            return "EndOfData(DRAIN)" if drain else "EndOfData(NO_DRAIN)"
        case CheckpointBarrier(checkpoint_id=checkpoint_id):
            return f"CheckpointBarrier({checkpoint_id})"
        case EndOfPartition():
            return "EndOfPartition"
    return type(element).__name__


PRODUCERS: Final = {"T1": ["T1"], "T2": ["T1", "T2"]}


def run_upstream(recorded: RecordedJob, task: str) -> None:
    """Runs the task and its producers until none has anything to do."""
    recorded.job.run(recorded.subtasks(PRODUCERS[task]))


def final_checkpoint(recorded: RecordedJob, task: str, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> None:
    """As if the tasks that do not run here had acknowledged, too."""
    snapshot = recorded.job.trigger(kind)
    run_upstream(recorded, task)
    assert len(snapshot.acked) == len(PRODUCERS[task])
    recorded.job.complete(snapshot.checkpoint_id)
    run_upstream(recorded, task)


# --- situations -----------------------------------------------------------------------------------


def bounded(task: str, *, checkpointing: bool) -> list[str]:
    """Rows, the end of the source, and the checkpoint that a task waits for at its end."""
    recorded = RecordedJob(checkpointing=checkpointing, last_words=["finish"])
    for _ in range(2):
        recorded.sources["T1"].put_row()
    recorded.sources["T1"].end()
    run_upstream(recorded, task)
    if checkpointing:
        final_checkpoint(recorded, task)
    return written(recorded, task)


def stopped(task: str, kind: SnapshotKind) -> list[str]:
    """Rows, then a stop with a savepoint."""
    recorded = RecordedJob(last_words=["finish"])
    recorded.sources["T1"].put_row()
    run_upstream(recorded, task)
    final_checkpoint(recorded, task, kind)
    return written(recorded, task)


def ended_then_checkpoint(task: str, checkpoint_id: int) -> list[str]:
    """The source has ended, and the checkpoint is only on its way."""
    recorded = RecordedJob(first_checkpoint=checkpoint_id)
    recorded.sources["T1"].end()
    run_upstream(recorded, task)
    recorded.job.trigger(SnapshotKind.CHECKPOINT)
    run_upstream(recorded, task)
    return written(recorded, task)


def restored_as_finished(task: str, *, checkpointed: bool = True) -> list[str]:
    """A task that had finished before the snapshot, with the checkpoint that it waits for, or before that."""
    savepoint, store = stopped_after_s1_ended()
    recorded = RecordedJob(restore=savepoint, store=store, first_checkpoint=5)
    run_upstream(recorded, task)
    if checkpointed:
        final_checkpoint(recorded, task)
    return written(recorded, task)


def finished_behind(channels: int, checkpoint_id: int) -> list[str]:
    """A task restored as finished behind sources that keep running: a checkpoint, and then their end."""
    sources = {f"s{number}": ScriptedSource() for number in range(channels)}
    graph = graph_of(
        [*(vertex(name, 1, source=SCRIPTED) for name in sources), vertex("task", 1), vertex("behind", 1)],
        [*(edge(name, name, "task") for name in sources), edge("task", "task", "behind")],
    )
    nodes = {name: source_node(name, source, to(name)) for name, source in sources.items()}
    nodes["task"] = node("task", Recording("task", []), to("task"))
    nodes["behind"] = node("behind", Recording("behind", []))
    chains = {VertexId(name): Chain(nodes=(one,)) for name, one in nodes.items()}
    task = SubtaskId(VertexId("task"), 0)
    finished = TaskRestore(root="memory", checkpoint_id=CheckpointId(1), operators={}, finished=True)
    job = TaskJob(graph, chains, restores={task: finished}, first_checkpoint=checkpoint_id)
    running = [*(SubtaskId(VertexId(name), 0) for name in sources), task]
    job.run(running)
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run(running)
    for source in sources.values():
        source.end()
    job.run(running)
    return _written(job, "task")


# --- cases ----------------------------------------------------------------------------------------


def _played(words: str, output: list[str]) -> list[str] | None:
    """What our task writes in the situation of these words; None: no machine knows it."""
    task = "T2" if "one-input" in words else "T1"
    ids = [int(m["id"]) for item in output if (m := _ITEM.fullmatch(item)) and (m["id"] or "").isdigit()]
    before = re.search(r"(\d+) channels, checkpoint (\d+) before the watermarks", words)
    if before is not None and "restored as finished" in words:
        return finished_behind(int(before[1]), int(before[2]))
    if "channel" in words:
        return None
    if "restored as finished" in words:
        return restored_as_finished(task)
    if "closed on restore" in words:
        return restored_as_finished(task, checkpointed=False)
    if re.search(r"checkpoint after source( \w+)* finished", words):
        return ended_then_checkpoint(task, ids[0] if ids else 1)
    if "bounded" in words and "stop" not in words:
        off = re.search(r"checkpointing (off|disabled)", words) is not None
        return bounded(task, checkpointing=not off)
    if re.search(r"no[ _-]drain|without drain|suspend", words) or "NO_DRAIN" in str(output):
        return stopped(task, SnapshotKind.SUSPEND)
    if re.search(r"drain|terminate", words):
        return stopped(task, SnapshotKind.TERMINATE)
    return None


def _read(name: str, case: Json, _section: Any) -> Iterator[Case]:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", case["case"]).lower()
    output: list[str] = case["output"]
    items = [_ITEM.fullmatch(item) for item in output]
    if all(items):
        found = _played(words, output)
        if found is None:
            yield skipped(name, in_words("wireEvents", case["case"]))
        else:
            yield Case(name, partial(_compared, output, found))
        return
    for item in output:
        for part in re.split(r"[;,] ", item):
            if part == SAME_AS_INPUT:
                yield Case(f"{name}: {part}", _same_as_input)
            else:
                yield skipped(f"{name}: {part}", in_words("wireEvents", part))


def _compared(output: list[str], found: list[str]) -> Comparison:
    counts = {int(m["count"]) for item in output if (m := _ITEM.fullmatch(item)) and m["count"]}
    fits = re.fullmatch(_pattern(output), "".join(f"{w};" for w in found)) is not None
    if fits and counts <= {len(found)}:
        return Comparison(output, output)
    return Comparison(output, found)


def _pattern(output: list[str]) -> str:
    """The vector's notation as a regular expression over the names of elements."""
    parts = []
    for item in output:
        found = _ITEM.fullmatch(item)
        assert found is not None, item
        name = re.escape(found["name"])
        if found["id"] is not None:
            number = found["id"] if found["id"].isdigit() else r"\d+"
            name = rf"CheckpointBarrier\({number}\)"
        elif found["name"] == "EndOfData":
            name = r"EndOfData\(\w+\)"
        parts.append(f"(?:{name};){found['times']}")
    return "".join(parts)


def _same_as_input() -> Comparison:
    """A task behind a bounded source, with repeated elements taken as one."""
    task, behind = (bounded(name, checkpointing=True) for name in ("T1", "T2"))
    return Comparison([name for name, _ in groupby(task)], [name for name, _ in groupby(behind)])


SHAPES: Final[tuple[Shape, ...]] = (Shape("wireEvents", frozenset({"case", "output"}), _read),)
