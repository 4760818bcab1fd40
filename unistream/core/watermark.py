"""How watermarks of many channels become one, with idleness.

channels of one logical input ── `StatusWatermarkValve` ──► input
inputs of one operator        ── `CombinedWatermark`    ──► operator

An idle channel does not hold the others back, and a channel that comes back takes part only when it
has caught up with what was already said. Both are pure; one call, one step.
"""

from __future__ import annotations

from unistream.base.limits import MIN_WATERMARK
from unistream.model.elements import Watermark, WatermarkStatus

Signal = Watermark | WatermarkStatus


class _Channel:
    __slots__ = ("aligned", "idle", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_WATERMARK
        self.idle = False
        self.aligned = True


class StatusWatermarkValve:
    """The watermark of one gate: the least of all channels that are active and have caught up."""

    def __init__(self, channels: int) -> None:
        assert channels > 0, "a valve without channels says nothing"
        self._channels = [_Channel() for _ in range(channels)]
        self._watermark = MIN_WATERMARK
        self._idle = False

    @property
    def watermark(self) -> int:
        """The last one that came out."""
        return self._watermark

    def on_watermark(self, channel: int, timestamp: int) -> list[Signal]:
        """`timestamp` (ms) arrived on `channel`: what goes on, in order."""
        state = self._channels[channel]
        if state.idle or timestamp <= state.watermark:
            return []
        state.watermark = timestamp
        if not state.aligned and timestamp >= self._watermark:
            state.aligned = True
        return self._advance()

    def on_status(self, channel: int, idle: bool) -> list[Signal]:
        """`channel` became idle, or active again."""
        state = self._channels[channel]
        if state.idle == idle:
            return []
        state.idle = idle
        return self._became_idle(state) if idle else self._became_active(state)

    def _became_idle(self, state: _Channel) -> list[Signal]:
        state.aligned = False
        if not all(c.idle for c in self._channels):
            return self._advance()
        out: list[Signal] = []
        if state.watermark == self._watermark:  # it held back the others: flush what they had reached
            out = self._emit(max(c.watermark for c in self._channels))
        self._idle = True
        return [*out, WatermarkStatus(idle=True)]

    def _became_active(self, state: _Channel) -> list[Signal]:
        state.aligned = state.watermark >= self._watermark
        if not self._idle:
            return []
        self._idle = False
        return [WatermarkStatus(idle=False)]

    def _advance(self) -> list[Signal]:
        aligned = [c.watermark for c in self._channels if c.aligned]
        return self._emit(min(aligned)) if aligned else []

    def _emit(self, timestamp: int) -> list[Signal]:
        if timestamp <= self._watermark:
            return []
        self._watermark = timestamp
        return [Watermark(timestamp)]


class CombinedWatermark:
    """The watermark of an operator with several logical inputs.

    A finished input has sent MAX_WATERMARK, so it holds back nobody and pulls nobody forward.
    """

    def __init__(self, inputs: int) -> None:
        assert inputs > 0, "an operator without inputs has no combined watermark"
        self._watermarks = [MIN_WATERMARK] * inputs
        self._idle = [False] * inputs
        self._combined = MIN_WATERMARK
        self._all_idle = False

    @property
    def watermark(self) -> int:
        """The last one that came out."""
        return self._combined

    def on_watermark(self, input_index: int, timestamp: int) -> list[Signal]:
        """A watermark from the valve of an input; it also means that the input is active."""
        self._idle[input_index] = False
        self._watermarks[input_index] = max(timestamp, self._watermarks[input_index])
        return self._advance()

    def on_status(self, input_index: int, idle: bool) -> list[Signal]:
        """A status from the valve of an input: the watermark goes out before the status."""
        was_idle = self._all_idle
        self._idle[input_index] = idle
        out = self._advance()
        if was_idle != self._all_idle:
            out.append(WatermarkStatus(idle))
        return out

    def _advance(self) -> list[Signal]:
        active = [w for w, idle in zip(self._watermarks, self._idle, strict=True) if not idle]
        self._all_idle = not active
        # all idle: nobody holds back the one that had come furthest
        reached = min(active) if active else max(self._watermarks)
        if reached <= self._combined:
            return []
        self._combined = reached
        return [Watermark(reached)]
