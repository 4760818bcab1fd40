"""Which table has the letters, and where it is recorded which of them were replayed.

- A Delta table, or a folder of Parquet files, such as ``lake/fares-dead``: recorded in it.
- ``fares:build#fares-dead``, the table or topic of the sink `fares-dead` of a pipeline, which only that sink
  can open: recorded in its folder; of a database, or of Kafka, where one says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from unistream.api.described import described
from unistream.api.environment import Environment
from unistream.api.load import build
from unistream.api.sinks import sinks_of
from unistream.base.errors import ConfigError
from unistream.dead_letters.table import Letters, absolute, letters_at, letters_in
from unistream.port.dead_letters import KeepsLetters

_OF_A_SINK: Final = re.compile(r"([\w.]+:\w+)#(.+)")
LoadFunction = Callable[[str], Callable[[Environment], object]]


@dataclass(frozen=True, slots=True)
class DeadLetterPlace:
    """Where the letters of one table are, and the record of their replays.

    Attributes:
        name: For people.
        record: Path or URL of the folder in which its replays are recorded; None: none was given.
    """

    name: str
    record: str | None
    _read: Callable[[], Letters]

    def letters(self) -> Letters:
        """The letters as they are now. Raises ConfigError: there is no table, or it has no letters;
        Unreachable."""
        return self._read()

    def recorded(self) -> str:
        """`record`. Raises ConfigError: there is none."""
        if self.record is None:
            raise ConfigError(
                f"{self.name} has no folder to record in which letters were replayed: give one by --record, "
                "and always the same one"
            )
        return self.record


def place_of(table: str, record: str | None, config: dict[str, str], load: LoadFunction) -> DeadLetterPlace:
    """`table`: a path, a URL or ``MODULE:FUNCTION#SINK``.

    Raises:
        ConfigError: the pipeline has no such sink, or that cannot be read; or `record` is given for a table
            that has a folder.
        Unreachable: a catalogue does not answer.
    """
    of_sink = None if "://" in table else _OF_A_SINK.fullmatch(table)
    if of_sink is None:
        uri = absolute(table)
        return DeadLetterPlace(uri, _checked(uri, record, uri), partial(letters_at, uri))
    sink = _sink(of_sink[1], of_sink[2], config, load)
    read = lambda: letters_in(sink.letters(), sink.name)  # noqa: E731
    return DeadLetterPlace(sink.name, _checked(sink.letters_folder(), record, sink.name), read)


def _checked(folder: str | None, record: str | None, name: str) -> str | None:
    if folder is None:
        return None if record is None else absolute(record)
    if record is not None:
        raise ConfigError(
            f"--record is for a table in a database, or a topic; replays of {name} are recorded in {folder}"
        )
    return folder


def _sink(pipeline: str, uid: str, config: dict[str, str], load: LoadFunction) -> KeepsLetters:
    environment = Environment(config)
    with described():  # its targets need not be there
        build(load(pipeline), environment)
    sinks = sinks_of(environment.stream_graph())
    if uid not in sinks:
        known = ", ".join(map(repr, sorted(sinks)))
        raise ConfigError(f"{pipeline} has no sink {uid!r}; its sinks are {known}")
    sink = sinks[uid]
    if not isinstance(sink, KeepsLetters):
        raise ConfigError(
            f"sink {uid!r} ({sink.name}) cannot read its letters back: give the path of its Delta table or "
            "folder of files; letters of another kind have to be brought into one of these"
        )
    return sink
