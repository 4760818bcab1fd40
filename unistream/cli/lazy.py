"""A group of commands whose modules are loaded when they are called; its list is printed without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Lazy:
    """Where a command is.

    Attributes:
        place: ``module:name`` of a function, or of a `typer.Typer`: a group of commands.
        help: As the command itself says; a test compares the two.
    """

    place: str
    help: str

    def load(self, name: str) -> Any:
        """The command itself."""
        module, _, attribute = self.place.partition(":")
        found: typer.Typer | Callable[..., None] = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(name)(found)
            found = app
        command = get_command(found)
        command.name = name
        return command


def lazy_group(commands: Mapping[str, Lazy]) -> type[TyperGroup]:
    """The `cls=` of a `typer.Typer` with these commands, in this order."""

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """For lists and suggestions: a command that has a name and a help only."""
            known = commands.get(cmd_name)
            return None if known is None else TyperCommand(cmd_name, help=known.help)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, command, rest = super().resolve_command(ctx, args)
            return name, command if name is None else commands[name].load(name), rest

    return LazyGroup
