"""The table of planted bugs at the end of the report, whichever process has found them."""

from __future__ import annotations

import pytest

PLANTED = "planted bug"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each that was found: its name, the seeds it took, what found it."""
    found = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == PLANTED
    ]
    if found:
        terminalreporter.section("planted bugs")
        terminalreporter.write_line(f"{'bug':34s}  seeds  found by")
        for line in sorted(found):
            terminalreporter.write_line(line)
