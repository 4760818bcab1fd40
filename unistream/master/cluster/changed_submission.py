"""What was submitted of a job, with other options or another parallelism: an upgrade without new code. Pure.

The graph stays: what has shaped it (chains, exchanges, the runtime mode) is the matter of a new submission.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import structs

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.secrets import HIDDEN
from unistream.core.job import vertices_named, with_parallelism
from unistream.model.submission import SubmitRequest

CHANGEABLE: Final = (
    "execution.checkpointing.",
    "restart-strategy.",
    "jobmanager.adaptive-scheduler.",
    "slot.",
)
"""Beginnings of the options that act when a job starts, and in nothing that was made before."""


def changed(
    submitted: SubmitRequest, config: Mapping[str, str], parallelism: Mapping[str, int]
) -> SubmitRequest:
    """
    Args:
        submitted: As it was, with the parallelism that the job has reached.
        config: Options that take the place of its own.
        parallelism: By vertex id, vertex name or operator uid.

    Raises:
        ConfigError: an option or a parallelism that cannot be; what can.
    """
    for key, value in config.items():
        if not key.startswith(CHANGEABLE):
            raise ConfigError(
                f"option {key!r} cannot be changed without a new submission, only those that begin with "
                f"{', '.join(CHANGEABLE)}; 'unistream upgrade' submits the pipeline with any options"
            )
        if HIDDEN in value:
            raise ConfigError(f"the value of option {key!r} is hidden here: give the whole one, or leave it")
    texts = Configuration(config).to_dict()
    graph = submitted.graph
    if parallelism:
        graph = with_parallelism(graph, vertices_named(graph, parallelism))
    return structs.replace(
        submitted,
        graph=structs.replace(graph, config={**graph.config, **texts}),
        config={**submitted.config, **texts},
        given={**submitted.given, **texts},
    )
