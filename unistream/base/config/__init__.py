"""Typed configuration options with Flink's names, units and defaults.

An option is declared once, in the module of its topic; `docs/reference/configuration.md` is generated from
it. Values travel as text and are parsed where they are read, so that an error can name the key. An unknown
key is refused with the nearest known one.

    from unistream.base.config import CHECKPOINT_INTERVAL, Configuration
"""

# ruff: noqa: F403  (an option is imported without its topic, and eighty names are not repeated here)

from unistream.base.config.checkpoints import *
from unistream.base.config.cluster import *
from unistream.base.config.configuration import *
from unistream.base.config.exchange import *
from unistream.base.config.failures import *
from unistream.base.config.high_availability import *
from unistream.base.config.history import *
from unistream.base.config.kinds import *
from unistream.base.config.memory import *
from unistream.base.config.object_stores import *
from unistream.base.config.parsing import *
from unistream.base.config.pipeline import *
from unistream.base.config.rocksdb import *
from unistream.base.config.scheduling import *
from unistream.base.config.security import *
from unistream.base.config.state import *
from unistream.base.config.workers import *
