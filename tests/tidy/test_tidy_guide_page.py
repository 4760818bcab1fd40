"""What a page of the guide asks somebody to type, and whether what comes is what it says."""

from __future__ import annotations

import pytest

from tests.guide_page import Step, is_said, steps_of


@pytest.mark.parametrize(
    ("page", "then"),
    [
        pytest.param("```python\n# a.py\nx\n```", [Step("file", "# a.py\nx\n", "a.py")], id="a file"),
        pytest.param("```python\nx = 1\n```", [Step("python", "x = 1\n")], id="lines of Python"),
        pytest.param(
            "```sh\n# first\ncd a\n\nls \\\n  b\n```",
            [Step("command", "cd a"), Step("command", "ls    b")],
            id="commands, one over two lines",
        ),
        pytest.param(
            "```console\n$ ls\na\nb\n$ pwd\n```",
            [Step("command", "ls", says="a\nb\n"), Step("command", "pwd", says="")],
            id="commands with what they print",
        ),
        pytest.param(
            "```sh\nls\n```\nSays:\n\n```text\na\n```",
            [Step("command", "ls", says="a\n")],
            id="what the last one prints",
        ),
        pytest.param(
            "```sh\n# in a second terminal\nserve now\n```",
            [Step("terminal", "serve now")],
            id="one that goes on",
        ),
        pytest.param(
            "```console\n# in a second terminal\n$ serve\nready\n```",
            [Step("terminal", "serve", says="ready\n")],
            id="one that goes on, and what it prints first",
        ),
        pytest.param("<!-- not typed: a power cut -->\n```sh\nkill\n```", [], id="what nobody can type"),
        pytest.param("```json\n{}\n```\n```\n  a -> b\n```", [], id="what is only shown"),
    ],
)
def test_what_is_typed(page: str, then: list[Step]) -> None:
    assert steps_of(page) == then


@pytest.mark.parametrize(
    ("page", "printed", "then"),
    [
        pytest.param("9 rows", "9 rows\n", True, id="the same"),
        pytest.param("9 rows", "8 rows", False, id="another number"),
        pytest.param("9 rows", "9 rows\nwarning", False, id="a line more"),
        pytest.param("9 rows\n…", "9 rows\nwarning\nmore", True, id="any lines"),
        pytest.param("…\n9 rows", "9 rows", True, id="any lines, of which there are none"),
        pytest.param("a  b\n1  2", "a    b \n1    2 ", True, id="columns of another width"),
        pytest.param("1 passed in 2.5s", "1 passed in 14.02s", True, id="a duration"),
        pytest.param("12 ms, 3.0 kB", "1.4 s, 20 MB", True, id="units may differ"),
        pytest.param("at 2026-01-01 10:00:00", "at 2027-12-31 00:00:01", True, id="a time"),
        pytest.param("job 4f0c… runs", f"job {'0a' * 16} runs", True, id="an id"),
        pytest.param(
            "on http://127.0.0.1:40123", "on http://127.0.0.1:27001", True, id="a port that is drawn"
        ),
        pytest.param("on 127.0.0.1:9092", "on 127.0.0.1:27001", False, id="a port that everybody knows"),
        pytest.param("log: …/a.log", "log: /srv/ada/a.log", True, id="a folder"),
        pytest.param("a.b", "a+b", False, id="no pattern of ours"),
    ],
)
def test_what_is_said(page: str, printed: str, then: bool) -> None:
    assert is_said(page, printed) is then
