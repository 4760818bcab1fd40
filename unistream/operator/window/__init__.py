"""Windows and aggregates over them, in columns.

`windows` assigns rows to windows, `local` aggregates before the exchange, `operator` merges and fires at the
watermark, `fired` says what had fired before a restore, `aggregates` has count, sum and others. May import:
`operator.common`. Start with `operator`.
"""

from __future__ import annotations

from unistream.operator.window.aggregates import Aggregate, AggregatePlan, count, decoded, max, mean, min, sum
from unistream.operator.window.fired import FIRED, FIRED_TABLE
from unistream.operator.window.local import LocalWindowAggregate
from unistream.operator.window.operator import (
    STATE,
    WINDOW_END,
    WINDOW_START,
    WINDOWS,
    WindowAggregate,
    stored_window_setting,
)
from unistream.operator.window.windows import SlidingEventTimeWindows, TumblingEventTimeWindows, Windows
