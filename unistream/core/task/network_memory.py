"""Who may hold how much of a worker's network memory, in bytes: pure.

`NetworkLedger` is the pool. Each result partition and each input gate with remote channels has an `Account`,
with the minimum that it needs and the maximum that it can use; what is left above all minimums is divided in
proportion to what they could use, again whenever an account opens or closes. So the sizes never exceed the
pool, and the first account does not starve the others.

The size is checked before a piece of work begins, not during it. So an account may exceed it: by the output
of one step of its task, or by one batch that is larger than its size. That is counted too (`overdraft`), and
nothing is added before it is released.

`GateCredits` is the receiving side of the exchange between processes. A producer sends a batch only against
credit for all of its bytes. The window of a channel is its unused credit plus the bytes that are under way or
wait here; the account of a gate holds the sum of its windows. A producer whose credit is too small for its
next batch reports that (`need`); the channel then grows from the gate's floating share, or waits until it is
empty: then it gets what it needs in any case, so one batch of any size always passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unistream.base.errors import Transient
from unistream.base.limits import KIB, MIB

CHANNEL_BYTES_MIN: Final = 32 * KIB  # Flink's segment
BATCH_OVERHEAD_BYTES: Final = 4 * KIB  # of the objects around a small batch of a few columns

Grant = tuple[int, int]
"""(channel, bytes of new credit)."""


class Account:
    """What one owner holds; made by `NetworkLedger.open`."""

    __slots__ = ("_ledger", "_open", "least", "most", "name", "size", "used")

    def __init__(self, ledger: NetworkLedger, name: str, least: int, most: int) -> None:
        self._ledger = ledger
        self._open = True
        self.name = name
        self.least = least
        self.most = most
        self.size = least
        self.used = 0

    @property
    def has_room(self) -> bool:
        """It may take more: of any size, if it is empty."""
        return self.used < self.size or self.used == 0

    @property
    def overdraft(self) -> int:
        """Bytes above its size."""
        return max(0, self.used - self.size)

    def charge(self, size: int) -> None:
        """`size` more bytes are held. No effect once it is closed."""
        assert size >= 0, "a charge is not negative"
        if self._open:
            self.used += size
            self._ledger.add_used(size)

    def discharge(self, size: int) -> None:
        """`size` bytes fewer are held."""
        if self._open:
            assert 0 <= size <= self.used, f"{self.name} releases {size} of {self.used} bytes"
            self.used -= size
            self._ledger.add_used(-size)

    def close(self) -> None:
        """Releases all; idempotent."""
        if self._open:
            self.discharge(self.used)
            self._open = False
            self.size = 0
            self._ledger.forget(self)


class NetworkLedger:
    """The network memory of one worker, `total` bytes."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._accounts: list[Account] = []
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes that all accounts hold; more than `total` only by overdrafts."""
        return self._used

    def open(self, name: str, channels: int, most: int) -> Account:
        """An account for `channels` channels that can use at most `most` bytes.

        Raises:
            Transient: not even the minimum is left (tasks that are ending may release some).
        """
        least = channels * CHANNEL_BYTES_MIN
        taken = sum(account.least for account in self._accounts)
        if taken + least > self.total:
            raise Transient(
                f"insufficient network memory: {name} has {channels} channels, but only"
                f" {max(0, self.total - taken) // KIB} kb of {self.total // MIB} mb are not reserved for"
                " other channels; raise taskmanager.memory.network.min (or .fraction) or use fewer slots"
            )
        account = Account(self, name, least, max(least, most))
        self._accounts.append(account)
        self._share()
        return account

    def forget(self, account: Account) -> None:
        """Called by an account that closes."""
        self._accounts.remove(account)
        self._share()

    def add_used(self, size: int) -> None:
        """Called by an account that holds so many more (or fewer) bytes."""
        self._used += size

    def _share(self) -> None:
        spare = self.total - sum(account.least for account in self._accounts)
        wanted = sum(account.most - account.least for account in self._accounts)
        for account in self._accounts:
            extra = account.most - account.least
            account.size = account.least + (extra if wanted <= spare else extra * spare // wanted)

    def validate(self) -> None:
        """Asserts that the sums are right."""
        assert self._used == sum(account.used for account in self._accounts)
        assert sum(account.size for account in self._accounts) <= self.total
        for account in self._accounts:
            assert account.least <= account.size <= account.most


@dataclass(slots=True)
class _ChannelWindow:
    window: int = 0
    held: int = 0  # bytes that wait here
    needs: int = 0  # size of the batch that the producer cannot send; 0: none was reported
    is_open: bool = False

    @property
    def room(self) -> int:
        """What may still arrive."""
        return self.window - self.held


class GateCredits:
    """Credits of the remote channels of one gate.

    Args:
        exclusive: Bytes of each channel, if the account is large enough.
        step: The approximate minimum by which a channel grows.
    """

    def __init__(self, account: Account, channels: int, *, exclusive: int, step: int) -> None:
        self.account = account
        self._exclusive = exclusive
        self._step = step
        self._channels = [_ChannelWindow() for _ in range(channels)]
        self._waiting: list[int] = []  # channels whose need could not be met, the longest waiting first

    @property
    def held(self) -> int:
        """Bytes that wait to be consumed."""
        return sum(channel.held for channel in self._channels)

    def window(self, number: int) -> int:
        """Bytes that the producer of a channel may send, has under way, or that wait here."""
        return self._channels[number].window

    def open(self, number: int) -> int:
        """The first credit of a channel."""
        channel = self._channels[number]
        assert not channel.is_open, "a channel is opened once"
        channel.is_open = True
        channel.window = self._base
        self.account.charge(channel.window)
        return channel.window

    def close(self, number: int) -> None:
        """Releases its window; what arrives later does not count. Idempotent."""
        channel = self._channels[number]
        if channel.is_open:
            self.account.discharge(channel.window)
        self._channels[number] = _ChannelWindow()
        if number in self._waiting:
            self._waiting.remove(number)

    def received(self, number: int, size: int) -> None:
        """A batch of `size` bytes arrived, within the credit."""
        channel = self._channels[number]
        if channel.is_open:
            assert size <= channel.room, f"{size} bytes arrived on a channel with room for {channel.room}"
            channel.held += size
            channel.needs = 0

    def need(self, number: int, size: int) -> list[Grant]:
        """The producer has a batch of `size` bytes and not the credit for it."""
        channel = self._channels[number]
        if not channel.is_open or channel.room >= size:
            return []
        channel.needs = size
        if number not in self._waiting:
            self._waiting.append(number)
        return self._serve()

    def consumed(self, number: int, size: int) -> list[Grant]:
        """`size` bytes were consumed: their credit returns to the producer, or is granted to waiting
        channels."""
        channel = self._channels[number]
        if not channel.is_open:
            return []
        assert size <= channel.held, "what is consumed has arrived"
        channel.held -= size
        others_wait = any(waiting != number for waiting in self._waiting)
        floating = max(0, channel.window - self._base)
        freed = min(size, floating) if others_wait else min(size, floating, self.account.overdraft)
        channel.window -= freed
        self.account.discharge(freed)
        grants = [(number, size - freed)] if size > freed else []
        return grants + self._serve()

    @property
    def _base(self) -> int:
        return max(CHANNEL_BYTES_MIN, min(self._exclusive, self.account.size // len(self._channels)))

    def _serve(self) -> list[Grant]:
        """Grants for waiting channels."""
        grants: list[Grant] = []
        for number in list(self._waiting):
            channel = self._channels[number]
            missing = channel.needs - channel.room
            free = self.account.size - self.account.used
            if 0 < missing <= free:
                missing = min(free, max(missing, self._step))
            elif missing > 0 and channel.held > 0:
                continue  # what it holds is consumed first
            self._waiting.remove(number)
            if missing > 0:
                channel.window += missing
                self.account.charge(missing)
                grants.append((number, missing))
        return grants

    def validate(self) -> None:
        """Asserts that what waits here was granted, that the windows are charged, and that no empty channel
        waits."""
        for number, channel in enumerate(self._channels):
            assert 0 <= channel.held <= channel.window
            assert number not in self._waiting or channel.held > 0 or channel.room >= channel.needs
        assert self.account.used == sum(channel.window for channel in self._channels)
