"""Commands of one `handle` call, in order, and the sends whose outcome is still unknown."""

from __future__ import annotations

from unistream.base.ids import TaskManagerId
from unistream.core.contract.commands import Command, ReleaseSlots, RequestSlots, Send, SetTimer
from unistream.core.contract.messages import Delivered, SlotRequest, Timer, Undelivered
from unistream.model.messages import ToTaskManager


class CommandOutbox:
    """Collects commands; numbers the sends whose outcome is needed."""

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self._open: dict[int, Send] = {}
        self._last_token = 0

    def add(self, command: Command) -> None:
        self._commands.append(command)

    def send(self, task_manager: TaskManagerId, message: ToTaskManager) -> None:
        """Fire and forget: a loss is detected in some other way."""
        self.add(Send(task_manager=task_manager, message=message))

    def send_tracked(self, task_manager: TaskManagerId, message: ToTaskManager) -> int:
        """The outcome is reported with the returned token."""
        self._last_token += 1
        send = Send(task_manager=task_manager, message=message, token=self._last_token)
        self._open[self._last_token] = send
        self.add(send)
        return self._last_token

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self.add(SetTimer(timer=timer, delay_ms=delay_ms))

    def request_slots(self, requests: tuple[SlotRequest, ...]) -> None:
        if requests:
            self.add(RequestSlots(requests=requests))

    def release_slots(self, requests: tuple[str, ...]) -> None:
        """Leases of these requests, or the requests themselves if they are open. Those that have not been
        sent yet are taken back: no worker is started for a slot that another region has just left."""
        if not requests:
            return
        released = self._taken_back(requests)
        if released:
            self.add(ReleaseSlots(requests=released))

    def _taken_back(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Removes unsent requests with these keys; returns the other keys. One that has the age of a lost one
        is sent all the same, since that age is kept until it comes."""
        given, back = frozenset(keys), set[str]()
        for number, command in enumerate(self._commands):
            if not isinstance(command, RequestSlots):
                continue
            unsent = {one.key for one in command.requests if one.key in given and not one.replaces}
            left = tuple(one for one in command.requests if one.key not in unsent)
            self._commands[number] = RequestSlots(requests=left)
            back |= unsent
        empty = RequestSlots(requests=())
        self._commands = [command for command in self._commands if command != empty]
        return tuple(key for key in keys if key not in back)

    def settle(self, event: Delivered | Undelivered) -> Send | None:
        """The send that `event` is about; None if it is repeated or unknown."""
        return self._open.pop(event.token, None)

    def take(self) -> list[Command]:
        """All commands since the last call."""
        commands, self._commands = self._commands, []
        return commands
