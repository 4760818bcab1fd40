"""Where the splits of a job are."""

from __future__ import annotations

from unistream.core.checkpoint import SplitAssigner
from unistream.model.graph import JobGraph
from unistream.model.snapshot import Manifest


def check_splits(graph: JobGraph, manifest: Manifest, read: set[str]) -> None:
    """Every split that was discovered is in exactly one place (FLINK-21996), or was `read` to its end by a
    task that has finished and so has no state."""
    for vertex in manifest.vertices:
        source = graph.vertex(vertex.vertex).source
        if source is None or vertex.coordinator is None:
            continue
        assigner = SplitAssigner.restore(source, vertex.parallelism, vertex.coordinator)
        held = [split.id for split in assigner.unassigned]
        for task in vertex.subtasks:
            for operator in task.operators.values() if task else ():
                splits = (h for h in operator.lists if h.name == "splits")
                held += [item.decode().partition(":")[2] for h in splits for item in h.inline or ()]
        assert len(held) == len(set(held)), f"a split is twice in {manifest.checkpoint_id}"
        assert set(held) <= set(assigner.known), f"an invented split in {manifest.checkpoint_id}"
        assert set(assigner.known) - set(held) <= read, f"a split is lost in {manifest.checkpoint_id}"
