"""The text of a config.yaml -> options with the lines where they are.

Keys are Flink's, nested, flat or both mixed. A value is the text that stands there: nothing is guessed from
its look, so ``on``, ``1:30``, ``1e3`` and ``010`` are what the option makes of them, as with ``-D``. What
could mean two things is a fault: a key twice, anchors, tags, lists, a second document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from unistream.base.config.configuration import FOREIGN, OPTIONS, OTHER_KEYS, unknown_key
from unistream.base.config_file.places import ConfigFault, OptionValue, PlaceKind, ValuePlace

if TYPE_CHECKING:
    from yaml.events import Event, ScalarEvent

FILE_BYTES_MAX: Final = (
    256 * 1024
)  # every option there is, with comments, has 60 KB; the reader takes 1 s for it
DEPTH_MAX: Final = 16  # of mappings in each other: the longest key has 6 parts
_NOTHING: Final = frozenset(("", "~", "null", "Null", "NULL"))  # of YAML 1.2


def read_yaml(content: bytes, name: str) -> tuple[list[OptionValue], list[ConfigFault]]:
    """The options of a file, unchecked, and its faults. `name`: of the file, as users know it."""
    reader = _YamlReader(name)
    if len(content) > FILE_BYTES_MAX:
        reader.fault(0, f"the file has more than {FILE_BYTES_MAX // 1024} KiB, so it is no configuration")
        return [], reader.faults
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        reader.fault(line, "the file is not UTF-8: save it in that encoding")
        return [], reader.faults
    reader.read(text)
    return reader.found, reader.faults


class _YamlReader:
    """Reads events of the parser, each once. (Nodes would be made of anchors first, which may be a bomb.)"""

    def __init__(self, name: str) -> None:
        self.found: list[OptionValue] = []
        self.faults: list[ConfigFault] = []
        self._name = name
        self._lines: dict[str, int] = {}  # of each key, as it counts

    def fault(self, line: int, sentence: str, key: str = "") -> None:
        place = ValuePlace(kind=PlaceKind.FILE, name=self._name, line=line)
        self.faults.append(ConfigFault(place=place, sentence=sentence, key=key))

    def read(self, text: str) -> None:
        import yaml  # here: commands without a file start without it

        try:
            self._stream(yaml.parse(text, Loader=yaml.SafeLoader))
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            self.fault(line, f"a character that no text has (U+{error.character:04X}): remove it")
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.fault(0 if mark is None else mark.line + 1, _explained(error.problem or str(error)))

    def _stream(self, events: Iterator[Event]) -> None:
        import yaml

        documents = 0
        for event in events:
            match event:
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        self.fault(_line(event), "a second document begins here: remove the '---' before it")
                        return
                case yaml.MappingStartEvent():
                    self._is_plain(event)
                    self._mapping(events, "", 1)
                case yaml.ScalarEvent() if event.style is None and event.value in _NOTHING:
                    continue
                case yaml.NodeEvent():
                    what = "a list" if isinstance(event, yaml.SequenceStartEvent) else "a text"
                    self.fault(
                        _line(event), f"a configuration has lines such as 'rest.port: 8081', not {what}"
                    )
                    return

    def _mapping(self, events: Iterator[Event], prefix: str, depth: int) -> None:
        """Reads up to the end of the mapping."""
        import yaml

        own: dict[str, int] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                return
            name = self._key(events, event)
            value = next(events)
            if name is None:
                _skip(events, value)
                continue
            key, line = f"{prefix}{name}", _line(event)
            if name in own:
                self.fault(line, f"{key} is there twice, on line {own[name]} and here: remove one", key)
                _skip(events, value)
                continue
            own[name] = line
            self._value(events, value, key, line, depth)

    def _key(self, events: Iterator[Event], event: Event) -> str | None:
        """None: it cannot be one; there is a fault."""
        import yaml

        if not isinstance(event, yaml.ScalarEvent):
            self.fault(_line(event), "a key is a text, such as rest.port")
            _skip(events, event)
            return None
        if not self._is_plain(event):
            return None
        if event.value == "<<":
            self.fault(_line(event), "'<<' is not supported: write the keys out")
            return None
        return str(event.value)

    def _value(self, events: Iterator[Event], event: Event, key: str, line: int, depth: int) -> None:
        import yaml

        if not self._is_plain(event):
            _skip(events, event)
            return
        match event:
            case yaml.ScalarEvent():
                self._scalar(event, key, line)
            case yaml.MappingStartEvent() if depth < DEPTH_MAX:
                self._mapping(events, f"{key}.", depth + 1)
            case yaml.MappingStartEvent():
                self.fault(line, f"{key[:80]}…: no key has more than {DEPTH_MAX} parts")
                _skip(events, event)
            case _:
                self.fault(
                    line, f"{key} is a list: write its parts as one text, with commas between them", key
                )
                _skip(events, event)

    def _scalar(self, event: ScalarEvent, key: str, line: int) -> None:
        if event.style is None and event.value in _NOTHING:
            if key in OPTIONS or key in OTHER_KEYS or key.startswith(FOREIGN):
                self.fault(line, f"{key} has no value: give it one, or remove the line", key)
            elif not any(known.startswith(f"{key}.") for known in OPTIONS):
                self.fault(line, unknown_key(key), key)
            return
        before = self._lines.setdefault(key, line)
        if before != line:
            self.fault(line, f"{key} is there twice, on line {before} and here: remove one", key)
            return
        place = ValuePlace(kind=PlaceKind.FILE, name=self._name, line=line)
        self.found.append(OptionValue(key=key, text=event.value, raw=event.value, place=place))

    def _is_plain(self, event: Event) -> bool:
        """It has no anchor and no tag, and refers to none; else there is a fault."""
        import yaml

        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent) or anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            self.fault(_line(event), f"{sign}{anchor}: anchors are not supported: write the value out")
            return False
        if tag is not None:
            self.fault(_line(event), "tags such as '!!str' are not supported: every value is a text already")
            return False
        return True


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1


def _skip(events: Iterator[Event], event: Event) -> None:
    """Reads to the end of what has begun with `event`."""
    import yaml

    depth = 0
    while True:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth == 0:
            return
        event = next(events)


def _explained(problem: str) -> str:
    if "'\\t'" in problem:
        return "a tab stands here: YAML wants spaces before a key"
    if "mapping values are not allowed" in problem:
        return "a second ': ' on the line, or a wrong number of spaces before it: put the value in quotes"
    return f"this is no YAML: {problem}"
