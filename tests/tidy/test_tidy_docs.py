"""Documents: links lead somewhere, the index is whole, contributing fits on a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import life_cycle_doc

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
TYPED_ELSEWHERE = {"tour", "connectors"}
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    targets = [match[1] for match in LINK.finditer(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_code_of_every_page_is_run() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    with_code = [page for page in PAGES if "```python\n" in page.read_text(encoding="utf-8")]
    elsewhere = [page for page in with_code if page.parent != GUIDE or page.stem in TYPED_ELSEWHERE]
    assert len(elsewhere) > 3
    assert [page.name for page in elsewhere if page.name not in tests] == []


def test_no_column_has_a_name_that_a_database_takes_for_a_keyword() -> None:
    """DuckDB 2 does: `SELECT at FROM t`."""
    column = re.compile(r"""["']at["']""")
    pages = {str(page.relative_to(ROOT)): code_of(page.read_text("utf-8")) for page in PAGES}
    sources = [*(ROOT / "unistream").rglob("*.py"), *(ROOT / "dagster_defs").rglob("*.py")]
    examples = {str(path.relative_to(ROOT)): examples_of(path.read_text("utf-8")) for path in sources}
    assert [name for name, text in (pages | examples).items() if column.search(text)] == []


def code_of(page: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))


def examples_of(source: str) -> str:
    return "\n".join(line for line in source.splitlines() if line.lstrip().startswith((">>> ", "... ")))


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_the_life_cycles_are_drawn_from_the_tables() -> None:
    page = ROOT / "docs" / "reference" / "life-cycle.md"
    assert page.read_text(encoding="utf-8") == life_cycle_doc.render(), (
        "run: python -m tests.support.life_cycle_doc > docs/reference/life-cycle.md"
    )


def test_a_decision_says_what_else_was_considered() -> None:
    for page in (ROOT / "docs" / "decision").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        headings = set(re.findall(r"^## (.+)$", text, re.MULTILINE))
        assert {"Question", "Decision", "Why", "What follows"} <= headings, page.name
        assert "What else was considered" in headings or "considered, and why not" in text, page.name


def test_the_walks_through_the_house_name_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+/[\w/]+\.py)`", text))
    assert len(named) > 30
    assert {name for name in named if not (ROOT / "unistream" / name).is_file()} == set()


def test_contributing_fits_on_a_page() -> None:
    lines = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 80


def test_the_changes_have_a_section_for_the_next_release() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
