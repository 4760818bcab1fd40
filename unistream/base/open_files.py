"""How many files this process may open."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)


def allow_many_files() -> None:
    """Raises the limit as far as the system lets it.

    A master has three files for each worker. What shells give a process is a limit for programs that use
    `select`, often 1,024 (as systemd.exec(5) says): that is 300 workers.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # macOS has a limit below the one that it names
        logger.info("event=files_limit_stays limit=%d reason=%s", soft, error)
