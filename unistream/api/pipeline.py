"""What a job was made of, as its cluster keeps it: a replay of dead letters cuts its job from that."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from unistream.api.frames import frame_sources
from unistream.base.errors import ConfigError
from unistream.base.limits import PIPELINE_BYTES_MAX
from unistream.model.stream_graph import StreamGraph
from unistream.port.source import DEAD_LETTERS_TAG

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What the job of one environment was made of.

    Attributes:
        graph: As it was before chaining.
        follows: Node -> node whose parallelism it takes.
        config: Of the job.
    """

    graph: StreamGraph
    follows: Mapping[int, int]
    config: Mapping[str, str]


def packed(pipeline: Pipeline) -> bytes:
    """Packs a pipeline whose dead letters go somewhere, for its submission; empty: they do not, or what it
    was made of cannot be kept. That is no reason to refuse the job: its letters are replayed by the command
    then."""
    from unistream.worker.code import pack_pipeline

    if all(edge.tag != DEAD_LETTERS_TAG for edge in pipeline.graph.edges):
        return b""
    if frames := frame_sources(pipeline.graph):
        _log.info("event=pipeline_not_kept job=%r: source %r is a DataFrame", pipeline.graph.name, frames[0])
        return b""
    try:
        content = pack_pipeline(pipeline)
    except ConfigError as error:
        _log.warning("event=pipeline_not_kept job=%r reason=%r", pipeline.graph.name, str(error))
        return b""
    if len(content) > PIPELINE_BYTES_MAX:
        _log.warning("event=pipeline_not_kept job=%r bytes=%s", pipeline.graph.name, len(content))
        return b""
    return content
