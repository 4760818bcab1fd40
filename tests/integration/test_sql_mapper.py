"""SQLAlchemy's mapper is whole before a thread of ours works with a database."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.eventually import WAIT_S

# The main thread imports the mapper while another one makes what a look-up of a table needs.
PROGRAM = """
import sys, threading
from sqlalchemy import bindparam
import {module}

errors, ended = [], threading.Event()

def ask():
    while not ended.is_set():
        try:
            bindparam("table_names", expanding=True)
        except AttributeError as error:
            errors.append(error)

sys.setswitchinterval(1e-6)
asking = threading.Thread(target=ask)
asking.start()
import sqlalchemy.orm
ended.set()
asking.join()
print(len(errors))
"""


@pytest.mark.parametrize("module", ["unistream.connector.sql.database", "unistream.metadata.engine"])
def test_who_imports_the_mapper_meanwhile_breaks_no_query(module: str) -> None:
    program = PROGRAM.format(module=module)
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
