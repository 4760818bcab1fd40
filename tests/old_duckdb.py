"""What an old DuckDB, as a reader of what we wrote, cannot do."""

from typing import Final

import duckdb

MISREADS_FOLDERS: Final = int(duckdb.__version__.split(".")[0]) < 2
"""A folder `p=null` is a null to it, and to 1.4 the folder of the nulls is a text."""
