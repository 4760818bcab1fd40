"""A master may open as many files as the system lets it."""

from __future__ import annotations

import resource
import subprocess
import sys

PROGRAM = """\
import resource
from unistream.base.open_files import allow_many_files
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
allow_many_files()
allow_many_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_is_raised_once_and_stays() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    assert run.stdout.split() == [str(hard)] * 2
