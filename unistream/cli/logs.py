"""Where log lines of a command go."""

from __future__ import annotations

import logging
import sys


def log_to_stderr(verbose: bool) -> None:
    """Warnings, or with `verbose` what happens; once."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("unistream").setLevel(logging.INFO if verbose else logging.WARNING)
