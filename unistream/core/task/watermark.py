"""How watermarks of many channels become one, with idleness.

channels of one logical input ── `StatusWatermarkValve` ──► input
inputs of one operator        ── `CombinedWatermark`    ──► operator

An idle channel does not hold the others back; one that becomes active again counts only when it has caught up
with the emitted watermark. A finished one (`on_finished`) neither holds back nor pulls forward the others,
whether they are active or idle; event time ends only when all have finished. Flink 2.3 has no finished
inputs: it treats their MAX_WATERMARK like any other watermark (as `on_watermark` does), and rows behind the
idleness of the others are late (FLINK-38477). See docs/decision/finished-inputs.md. Pure; one call, one step.
"""

from __future__ import annotations

from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.elements import Watermark, WatermarkStatus

Signal = Watermark | WatermarkStatus


class _ChannelStatus:
    __slots__ = ("aligned", "finished", "idle", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_WATERMARK
        self.idle = False
        self.finished = False
        self.aligned = True


class StatusWatermarkValve:
    """The watermark of one gate: the least of all channels that are active and have caught up."""

    def __init__(self, channels: int) -> None:
        assert channels > 0, "a valve has channels"
        self._channels = [_ChannelStatus() for _ in range(channels)]
        self._watermark = MIN_WATERMARK
        self._idle = False

    @property
    def watermark(self) -> int:
        """The last emitted one."""
        return self._watermark

    def on_watermark(self, channel: int, timestamp: int) -> list[Signal]:
        """`timestamp` (ms) arrived on `channel`: what is emitted, in order."""
        state = self._channels[channel]
        if state.finished or state.idle or timestamp <= state.watermark:
            return []
        state.watermark = timestamp
        if not state.aligned and timestamp >= self._watermark:
            state.aligned = True
        return self._advance()

    def on_status(self, channel: int, idle: bool) -> list[Signal]:
        """`channel` became idle, or active again."""
        state = self._channels[channel]
        if state.finished or state.idle == idle:
            return []
        state.idle = idle
        return self._became_idle(state) if idle else self._became_active(state)

    def on_finished(self, channel: int) -> list[Signal]:
        """`channel` has no more rows. The last one ends event time."""
        state = self._channels[channel]
        if state.finished:
            return []
        state.finished = True
        state.aligned = False
        if not self._open:
            active: list[Signal] = [WatermarkStatus(idle=False)] if self._idle else []
            self._idle = False
            return [*active, *self._emit(MAX_WATERMARK)]
        if self._idle:
            return []
        return self._all_idle() if all(c.idle for c in self._open) else self._advance()

    @property
    def _open(self) -> list[_ChannelStatus]:
        return [c for c in self._channels if not c.finished]

    def _became_idle(self, state: _ChannelStatus) -> list[Signal]:
        state.aligned = False
        if not all(c.idle for c in self._open):
            return self._advance()
        if state.watermark == self._watermark:
            return self._all_idle()
        self._idle = True
        return [WatermarkStatus(idle=True)]

    def _all_idle(self) -> list[Signal]:
        """The last active one had held back the others: emits the maximum that they have reached."""
        out = self._emit(max(c.watermark for c in self._open))
        self._idle = True
        return [*out, WatermarkStatus(idle=True)]

    def _became_active(self, state: _ChannelStatus) -> list[Signal]:
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
    """The watermark of an operator with several logical inputs."""

    def __init__(self, inputs: int) -> None:
        assert inputs > 0, "an operator has inputs"
        self._watermarks = [MIN_WATERMARK] * inputs
        self._idle = [False] * inputs
        self._finished = [False] * inputs
        self._combined = MIN_WATERMARK
        self._all_idle = False
        self._emitted_idle = False  # a watermark makes an idle input active without a status

    @property
    def watermark(self) -> int:
        """The last emitted one."""
        return self._combined

    def on_watermark(self, input_index: int, timestamp: int) -> list[Signal]:
        """A watermark from the valve of an input; it also means that the input is active."""
        if self._finished[input_index]:
            return []
        self._idle[input_index] = False
        self._watermarks[input_index] = max(timestamp, self._watermarks[input_index])
        return self._advance()

    def on_status(self, input_index: int, idle: bool) -> list[Signal]:
        """A status from the valve of an input: the watermark is emitted before the status."""
        if self._finished[input_index]:
            return []
        was_idle = self._all_idle
        self._idle[input_index] = idle
        out = self._advance()
        if was_idle != self._all_idle:
            out.append(self._status(idle))
        return out

    def on_finished(self, input_index: int) -> list[Signal]:
        """All channels of an input have finished. The last input ends event time, which an idle operator
        emits as an active one."""
        self._finished[input_index] = True
        out = self._advance()
        if self._emitted_idle != self._all_idle:
            out.insert(0 if self._emitted_idle else len(out), self._status(self._all_idle))
        return out

    def _status(self, idle: bool) -> WatermarkStatus:
        self._emitted_idle = idle
        return WatermarkStatus(idle)

    def _advance(self) -> list[Signal]:
        inputs = zip(self._watermarks, self._idle, self._finished, strict=True)
        still_open = [(watermark, idle) for watermark, idle, finished in inputs if not finished]
        active = [watermark for watermark, idle in still_open if not idle]
        self._all_idle = bool(still_open) and not active
        # all idle: the maximum; all finished: event time ends
        reached = min(active) if active else max((w for w, _ in still_open), default=MAX_WATERMARK)
        if reached <= self._combined:
            return []
        self._combined = reached
        return [Watermark(reached)]
