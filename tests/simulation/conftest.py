"""Planted bugs that were found, and branches that seeds reached: the end of the report of all processes."""

from __future__ import annotations

import pytest

PLANTED = "planted bug"
SEEDS = "seeds"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each bug that was found: its name, the seeds it took, what found it."""
    passed = terminalreporter.getreports("passed")
    said = [one for report in passed for one in report.user_properties]
    for text in [value for name, value in said if name == SEEDS]:
        terminalreporter.section("seeds")
        terminalreporter.write_line(text)
    if found := [value for name, value in said if name == PLANTED]:
        terminalreporter.section("planted bugs")
        terminalreporter.write_line(f"{'bug':34s}  seeds  found by")
        for line in sorted(found):
            terminalreporter.write_line(line)
