"""Tables in terminals of any width: what is left out, what becomes shorter, and that words stay whole."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from tests.unit.cli import screens
from unistream.cli.formats import moment
from unistream.cli.info import shown as info_shown
from unistream.cli.output import jobs_grid
from unistream.cli.tables import Fit, Grid, PrintedColumn

ID = "1ccf29c49f5d7a7e5b206da87fbaf893"
URL = "http://127.0.0.1:39345/somewhere/that/is/long"
WHY = "the broker at kafka.example does not answer"


def shown(grid: Grid, width: int | None) -> list[str]:
    return [line.plain for line in grid.lines(width)]


def jobs() -> Grid:
    grid = Grid(
        PrintedColumn("JOB"),
        PrintedColumn("NAME", fit=Fit.MIDDLE),
        PrintedColumn("RESTARTS", rank=1, right=True),
        PrintedColumn("CLUSTER", rank=2),
    )
    grid.add((ID, ID[:8]), "flights_per_minute_and_carrier", "3", URL)
    return grid


@pytest.mark.parametrize(
    ("width", "then"),
    [
        pytest.param(None, f"{ID}  flights_per_minute_and_carrier         3  {URL}", id="in a file all"),
        pytest.param(150, f"{ID}  flights_per_minute_and_carrier         3  {URL}", id="there is room"),
        pytest.param(
            100, f"1ccf29c4  flights_per_minute_and_carrier         3  {URL}", id="the id is shorter"
        ),
        pytest.param(
            80,
            f"{ID}  flights_per_minute_and_carrier         3",
            id="the greatest rank goes, and the id is back",
        ),
        pytest.param(
            46, "1ccf29c4  flights_per_m…_and_carrier         3", id="the name has what the others leave"
        ),
        pytest.param(
            34, "1ccf29c4  flights_per_…and_carrier", id="a name loses its middle when nothing else can go"
        ),
        pytest.param(18, "1ccf29c4  flig…ier", id="and then more of it"),
    ],
)
def test_what_a_narrow_terminal_shows(width: int | None, then: str) -> None:
    assert shown(jobs(), width)[1] == then


def failures() -> Grid:
    grid = Grid(
        PrintedColumn("TIME"), PrintedColumn("WHERE", fit=Fit.MIDDLE), PrintedColumn("WHAT", fit=Fit.WORDS)
    )
    grid.add("4 min ago", "tm-22203cd1719f at 127.0.0.1:4000", WHY)
    return grid


@pytest.mark.parametrize(
    ("width", "then"),
    [
        pytest.param(200, [f"4 min ago  tm-22203cd1719f at 127.0.0.1:4000  {WHY}"], id="one line"),
        pytest.param(
            80,
            [
                "4 min ago  tm-22203cd171…27.0.0.1:4000  the broker at kafka.example does not",
                "                                        answer",
            ],
            id="words go on in the next line",
        ),
        pytest.param(
            45,
            [
                "4 min ago  tm-222…:4000  the broker at",
                "                         kafka.example does",
                "                         not answer",
            ],
            id="the name is as short as it can be",
        ),
    ],
)
def test_a_text_is_broken_between_words(width: int, then: list[str]) -> None:
    assert shown(failures(), width)[1:] == then


@pytest.mark.parametrize("width", range(10, 160, 7))
def test_a_path_stays_whole_however_narrow_it_is(width: int) -> None:
    grid = Grid(PrintedColumn("label"), PrintedColumn("value", fit=Fit.WORDS), headings=False)
    grid.add("directory", f"it is {URL} since then")
    assert URL in " ".join(shown(grid, width)).split()


@pytest.mark.parametrize("width", range(20, 160, 7))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for grid in (jobs(), failures()):
        assert all(cell_len(line) <= max(width, 40) for line in shown(grid, width))


def test_names_of_other_scripts_take_the_room_that_they_need() -> None:
    grid = Grid(PrintedColumn("NAME", fit=Fit.MIDDLE), PrintedColumn("ROWS", right=True))
    grid.add("注文を集計する", "12")
    grid.add("orders", "7")
    assert [cell_len(line) for line in shown(grid, 80)] == [20, 20, 20]


def test_a_cell_is_one_line_whatever_is_in_it() -> None:
    grid = Grid(PrintedColumn("WHY", fit=Fit.WORDS))
    grid.add("no fare\nat row 2\t[bold]")
    assert shown(grid, None)[1:] == ["no fare at row 2 [bold]"]


@pytest.mark.parametrize("name", ["a [/b] job", "[red]stop[/red]", "rows[0]"])
@pytest.mark.parametrize("width", [screens.NARROW, screens.WIDE])
def test_names_are_shown_letter_by_letter(name: str, width: int) -> None:
    info = replace(screens.job("fares"), name=name)
    [(place, job)] = [one for one in screens.jobs() if one[1].job == info.job]
    pages = [jobs_grid([(place, replace(job, name=name))], 0), *info_shown(info, 0)]
    text = screens.printed(pages, width, color=False)
    assert text.count(f"{name}  ") + text.count(f"{name}\n") == 2


@pytest.mark.parametrize(
    ("zone", "then"),
    [("UTC", "1970-01-01 00:00:00 UTC"), ("XYZ-5:30", "1970-01-01 05:30:00 +05:30")],
)
def test_a_moment_has_its_zone(zone: str, then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", zone)
        time.tzset()
        found = moment(0)
    time.tzset()
    assert found == then
