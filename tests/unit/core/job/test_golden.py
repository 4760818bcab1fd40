"""Golden traces: a script drives a job in the pretended cluster, the printed story is reviewed as a diff.

A trace is in tests/golden. Lines with ``>`` are the script, the others the commands of the machine:

    start | stop                the job's first event; a stop with drain
    settle [except PREFIX]      everything happens that goes well, save actions that begin with PREFIX
    fire KIND [ID]              a timer
    lose WORKER                 a worker is killed
    lose-ack N VERTEX/INDEX     a task acknowledges, but the message is lost

Regenerate with ``UNISTREAM_GOLDEN=write pytest tests/unit/core/job/test_golden.py`` and read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, job_graph, settings
from unistream.core import contract
from unistream.model import messages as msg
from unistream.model.snapshot_kind import SnapshotKind

GOLDEN = Path(__file__).parents[3] / "golden"
TRACES = sorted(GOLDEN.glob("job_*.txt"))


class Script:
    def __init__(self) -> None:
        tolerant = EVERY_2_S | {"execution.checkpointing.tolerable-failed-checkpoints": "1"}
        self.cluster = Cluster(job_graph(bounded=False), settings(tolerant))
        self.names = {vertex.id: vertex.name for vertex in self.cluster.graph.vertices}

    def run(self, line: str) -> list[str]:
        """What was commanded because of one line of the script."""
        before = len(self.cluster.commands)
        self._step(line)
        return [f"  {text}" for c in self.cluster.commands[before:] if (text := self._text(c))]

    def _step(self, line: str) -> None:
        cluster = self.cluster
        match line.split():
            case ["start"]:
                cluster.handle(contract.Started())
            case ["stop"]:
                cluster.handle(contract.SnapshotRequest(id="stop", kind=SnapshotKind.TERMINATE))
            case ["settle"]:
                cluster.settle()
            case ["settle", "except", *rest]:
                while actions := [a for a in cluster.enabled() if not a[0].startswith(" ".join(rest))]:
                    actions[0][1]()
            case ["fire", first, second, *id_]:
                kind = contract.TimerKind(f"{first} {second}")
                cluster.fire(contract.Timer(kind, int(id_[0])) if id_ else kind)
            case ["lose", worker]:
                cluster.lose(worker)
            case ["lose-ack", number, task]:
                vertex, _, index = task.partition("/")
                cluster.task(vertex, int(index)).acked.add(int(number))
            case _:
                raise AssertionError(f"not a step: {line}")

    def _text(self, command: contract.Command) -> str | None:  # noqa: C901
        match command:
            case contract.Send(task_manager=worker, message=msg.DeployTask(deployment=deployment)):
                restore = f" from {deployment.restore.root}" if deployment.restore else ""
                return f"{worker} <- Deploy {self._name(deployment.attempt)}{restore}"
            case contract.Send(task_manager=worker, message=msg.AssignSplits() as message):
                splits = " ".join(split.id for split in message.splits)
                return f"{worker} <- AssignSplits {self._name(message.attempt)}: {splits}"
            case contract.Send(task_manager=worker, message=msg.CancelTask(attempt=attempt)):
                return f"{worker} <- Cancel {self._name(attempt)}"
            case contract.Send(task_manager=worker, message=message):
                assert not isinstance(message, msg.DeployTask | msg.ReleaseTaskManager)
                number = getattr(message, "checkpoint_id", "")
                return f"{worker} <- {type(message).__name__} {number} {self._name(message.attempt)}"
            case contract.RequestSlots(requests=requests):
                return f"RequestSlots {' '.join(request.key for request in requests)}"
            case contract.SetTimer(timer=timer, delay_ms=delay_ms):
                return f"SetTimer {timer.kind.value} {timer.id or ''}".rstrip() + f" in {delay_ms} ms"
            case contract.PrepareDirectory(checkpoint_id=number, kind=kind):
                return f"PrepareDirectory {number} {kind.value}"
            case contract.WriteManifest(directory=directory):
                return f"WriteManifest {directory}"
            case contract.DiscardSnapshot(directory, sweep=contract.SweepSharedFiles(next_to, before)):
                return f"Discard {directory or 'nothing'}, then sweep beside {next_to} before {before}"
            case contract.DiscardSnapshot(directory):
                return f"Discard {directory}"
            case contract.RecordJobState(state=state, restarts=restarts):
                return f"job {state} after {restarts} restart(s)"
            case contract.RecordCheckpoint(record):
                why = f": {record.reason}" if record.reason else ""
                return f"checkpoint {record.checkpoint_id} {record.status.recorded}{why}"
            case contract.AnswerRequest(request=request, path=path, error=error):
                return f"answer {request}: {path or error}"
            case contract.JobEnded(state=state):
                return f"job has ended: {state}"
        return None

    def _name(self, attempt: msg.AttemptId) -> str:
        return f"{self.names[attempt.vertex]}/{attempt.index}.{attempt.attempt}"


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_trace(path: Path) -> None:
    script = Script()
    steps = [line for line in path.read_text().splitlines() if line.startswith(">")]
    lines = [line for step in steps for line in (step, *script.run(step[1:].strip()))]
    found = "\n".join(lines) + "\n"
    if os.environ.get("UNISTREAM_GOLDEN") == "write":
        path.write_text(found)
    assert found == path.read_text(), "the story has changed: regenerate, and read the diff"


def test_there_are_traces() -> None:
    assert TRACES
