"""What a Spark that is started here is configured with: what the user has set, wherever, and our defaults."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from unistream.base.config import JOBMANAGER_ADDRESS, JOBMANAGER_BIND, Configuration
from unistream.base.hosts import is_loopback

DRIVER_HOST: Final = "spark.driver.host"
DAEMON: Final = "unistream.host.spark_daemon"

_NEEDED: Final = {
    "spark.ui.liveUpdate.period": "0",  # else a task that fails is seen with the next event only
    "spark.python.worker.reuse": "false",  # a TaskManager's process is never another one's
}
_DEFAULTS: Final = {
    "spark.app.name": "unistream",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.task.killTimeout": "500ms",
}
_LOCAL_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",  # rows of bounded jobs pass through it, a piece at a time
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).parent}/log4j2.properties",
}
_ENTRY: Final = re.compile(r"\s*([^\s=:#!]+)\s*[\s=:]\s*(.*)")


def spark_settings(
    config: Mapping[str, str], *, local: bool, own_daemon: bool, elsewhere: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Settings of a context, without its master.

    Args:
        config: Of the cluster; its keys that begin with `spark.` come first.
        local: Its workers run on this machine, on Spark's threads.
        own_daemon: Python workers are forked from a process that has loaded our libraries.
        elsewhere: Keys that the user has set for every Spark: `set_elsewhere`. Our defaults are not for them.

    >>> spark_settings({"spark.ui.enabled": "true"}, local=False, own_daemon=False)["spark.ui.enabled"]
    'true'
    >>> everywhere = frozenset({"spark.ui.enabled"})
    >>> "spark.ui.enabled" in spark_settings({}, local=False, own_daemon=False, elsewhere=everywhere)
    False
    """
    defaults = _DEFAULTS | (_LOCAL_DEFAULTS if local else {})
    defaults |= {} if local else _driver_place(Configuration(config))
    settings = {key: value for key, value in defaults.items() if key not in elsewhere} | _NEEDED
    if own_daemon:
        settings["spark.python.daemon.module"] = DAEMON
    return settings | {key: value for key, value in config.items() if key.startswith("spark.")}


def _driver_place(config: Configuration) -> dict[str, str]:
    """Executors on other hosts reach the driver where workers reach the JobManager: both are one process."""
    host, bind = config.find(JOBMANAGER_ADDRESS), config.get(JOBMANAGER_BIND)
    if host is None or is_loopback(bind):
        return {}
    return {DRIVER_HOST: host, "spark.driver.bindAddress": bind}


def set_elsewhere(environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Keys that the user has set where every Spark reads them: in `spark-defaults.conf`, and by `--conf` in
    `PYSPARK_SUBMIT_ARGS`."""
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    keys: set[str] = set()
    if folder is not None and (file := Path(folder, "spark-defaults.conf")).is_file():
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        keys |= {entry[1] for line in lines if (entry := _ENTRY.fullmatch(line)) is not None}
    words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    for word, follows in pairwise([*words, ""]):
        setting = follows if word in ("--conf", "-c") else word.removeprefix("--conf=")
        if setting != word:
            keys.add(setting.partition("=")[0])
    return frozenset(keys - {""})
