"""Tables that stay readable in a narrow terminal: what is least important is left out, words stay whole.

In a terminal that is too narrow, in this order:

    cells that have a shorter form take it     a job's id its first characters, a moment its age
    columns of the greatest rank are left out  as kubectl does, where they have a priority
    ids and names lose their middle            FLIGHTS…DEPARTURES
    text goes on in the next line              at a space; a longer word, such as a path, stays whole

In a file or for another program nothing is left out, and each row is one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

GAP: Final = 2  # spaces between two columns
NAME_CHARS: Final = 24  # of a name, as long as there is another column to be left out
NAME_CHARS_MIN: Final = 8
WORDS_CHARS: Final = 40  # the same of a text
WORDS_CHARS_MIN: Final = 20
ELLIPSIS: Final = "…"

Cell: TypeAlias = str | Text
Forms: TypeAlias = Cell | tuple[Cell, ...]
"""A cell, or its forms, the longest first."""


class Fit(Enum):
    """How a column becomes narrower."""

    WHOLE = auto()
    MIDDLE = auto()
    WORDS = auto()


@dataclass(frozen=True, slots=True)
class PrintedColumn:
    """A heading, and what happens to the column where there is too little room.

    Attributes:
        rank: 0: it is always there; of the others the greatest is left out first.
        right: Its cells end below each other, as those of numbers should.
    """

    heading: str
    rank: int = 0
    fit: Fit = Fit.WHOLE
    right: bool = False


class Grid:
    """A table without lines; Rich prints it.

    Args:
        headings: False: the first row is one of the table.
    """

    def __init__(self, *columns: PrintedColumn, headings: bool = True) -> None:
        self._columns = columns
        self._headings = headings
        self._rows: list[tuple[Forms, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *cells: Forms) -> None:
        """A row, with a cell for each column."""
        assert len(cells) == len(self._columns), "a cell for each column"
        self._rows.append(cells)

    def lines(self, width: int | None) -> Iterator[Text]:
        """The table in so many columns; None: nothing is left out."""
        return _Layout(self._columns, self._rows, width, headings=self._headings).lines()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield from self.lines(options.max_width if console.is_terminal else None)


class _Layout:
    """The columns that are shown, the form of their cells, and their widths."""

    def __init__(
        self,
        columns: Sequence[PrintedColumn],
        rows: Sequence[Sequence[Forms]],
        width: int | None,
        *,
        headings: bool,
    ) -> None:
        self._columns = columns
        self._rows = rows
        self._headings = headings
        self._width = width
        self._forms = dict.fromkeys(range(len(columns)), 0)
        self._shown = list(range(len(columns)))
        self._widths: dict[int, int] = {}
        if width is None:
            self._widths = {n: self._natural(n) for n in self._shown}
        else:
            self._fit(width)

    def _fit(self, width: int) -> None:
        while not self._has_room(width):
            if self._take_shorter_forms(width):
                break
            least = max(self._shown, key=lambda n: (self._columns[n].rank, n))
            if self._columns[least].rank == 0:
                break
            self._shown.remove(least)
            self._forms = dict.fromkeys(self._shown, 0)
        self._share(width)

    def _take_shorter_forms(self, width: int) -> bool:
        """True: there is room now."""
        while not self._has_room(width):
            gains = {n: self._natural(n) - self._natural(n, self._forms[n] + 1) for n in self._shown}
            best = max(gains, key=lambda n: gains[n])
            if gains[best] <= 0:
                return False
            self._forms[best] += 1
        return True

    def _has_room(self, width: int) -> bool:
        return self._sum({n: self._least(n) for n in self._shown}) <= width

    def _share(self, width: int) -> None:
        """Names and texts lose more than they like only where nothing else is left to be taken."""
        is_narrow = not self._has_room(width)
        self._widths = {n: self._least(n, is_narrow=is_narrow) for n in self._shown}
        growing = [n for n in self._shown if self._columns[n].fit is not Fit.WHOLE]
        for fit in (Fit.MIDDLE, Fit.WORDS):
            for n in (n for n in growing if self._columns[n].fit is fit):
                spare = max(0, width - self._sum(self._widths))
                self._widths[n] = min(self._natural(n), self._widths[n] + spare)

    def _sum(self, widths: dict[int, int]) -> int:
        return sum(widths.values()) + GAP * max(0, len(widths) - 1)

    def _natural(self, n: int, form: int | None = None) -> int:
        return max((cell_len(text.plain) for text in self._cells(n, form)), default=0)

    def _least(self, n: int, *, is_narrow: bool = False) -> int:
        natural = self._natural(n)
        match self._columns[n].fit:
            case Fit.WHOLE:
                return natural
            case Fit.MIDDLE:
                chars = NAME_CHARS_MIN if is_narrow else NAME_CHARS
            case Fit.WORDS:
                chars = WORDS_CHARS_MIN if is_narrow else WORDS_CHARS
        return min(natural, max(chars, cell_len(self._columns[n].heading)))

    def _cells(self, n: int, form: int | None) -> Iterator[Text]:
        """The cells of a column, with its heading."""
        at = self._forms[n] if form is None else form
        if self._headings:
            yield Text(self._columns[n].heading, style="bold")
        for row in self._rows:
            yield _formed(row[n], at)

    # --- lines ------------------------------------------------------------------------------------

    def lines(self) -> Iterator[Text]:
        columns = [list(self._cells(n, None)) for n in self._shown]
        for cells in zip(*columns, strict=True):
            yield from self._row(cells)

    def _row(self, cells: Sequence[Text]) -> Iterator[Text]:
        parts = [self._parts(n, text) for n, text in zip(self._shown, cells, strict=True)]
        for number in range(max(map(len, parts))):
            line = Text()
            at = 0  # where the next column begins
            for n, lines in zip(self._shown, parts, strict=True):
                text = lines[number] if number < len(lines) else Text()
                pad = self._widths[n] - cell_len(text.plain) if self._columns[n].right else 0
                if text.plain:
                    line.append(" " * (at + max(0, pad) - cell_len(line.plain)))
                    line.append_text(text)
                at += self._widths[n] + GAP
            yield line

    def _parts(self, n: int, text: Text) -> list[Text]:
        width = self._widths[n]
        if self._width is None or cell_len(text.plain) <= width:
            return [text]
        match self._columns[n].fit:
            case Fit.WHOLE:
                return [text]
            case Fit.MIDDLE:
                return [without_middle(text, width)]
        return words_in(text, width, is_last=n == self._shown[-1])


def _formed(cell: Forms, at: int) -> Text:
    forms = cell if isinstance(cell, tuple) else (cell,)
    found = forms[min(at, len(forms) - 1)]
    text = found if isinstance(found, Text) else Text(found)
    if "\n" in text.plain or "\r" in text.plain or "\t" in text.plain:
        return Text(" ".join(text.plain.split()), style=text.style)
    return text


def without_middle(text: Text, width: int) -> Text:
    """A text of at most that width: as much of its beginning and of its end as there is room for.

    >>> without_middle(Text("tm-host-3f5a9c1b2d4e"), 11).plain
    'tm-ho…b2d4e'
    """
    plain, style = text.plain, text.style
    head = width // 2
    tail = width - 1 - head
    begin, end = plain, plain
    while cell_len(begin) > head:
        begin = begin[:-1]
    while cell_len(end) > tail:
        end = end[1:]
    return Text(f"{begin}{ELLIPSIS}{end}", style=style)


def words_in(text: Text, width: int, *, is_last: bool) -> list[Text]:
    """The words of a text in lines of so many columns. Behind the last column of a table a word may be
    longer: it stays whole, so that a path can be copied; elsewhere it loses its middle."""
    lines: list[Text] = []
    offset = 0
    for word in text.plain.split(" "):
        piece = text[offset : offset + len(word)]
        offset += len(word) + 1
        if cell_len(word) > width and not is_last:
            piece = without_middle(piece, width)
        if lines and cell_len(lines[-1].plain) + 1 + cell_len(piece.plain) <= width:
            lines[-1].append(" ")
            lines[-1].append_text(piece)
        else:
            lines.append(piece)
    return lines
