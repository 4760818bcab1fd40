"""What can be said about an operator after it was added: uid, name, parallelism, slot, chaining."""

from __future__ import annotations

from typing import Self

from unistream.api.graph import GraphBuilder, check_max_parallelism, check_parallelism
from unistream.base.errors import ConfigError
from unistream.model.stream_graph import StreamNode


class OperatorSettings:
    """Settings of the operator that made a stream, or of a sink; each returns the object itself."""

    _builder: GraphBuilder

    def _node(self, what: str) -> StreamNode:
        raise ConfigError(f"{what}: there is no operator here")

    def uid(self, uid: str) -> Self:
        """Stable identity: state of a savepoint is found by it, whatever else changes.

        Raises:
            ConfigError: another operator has it.
        """
        self._builder.set_uid(self._node("uid"), uid)
        return self

    def name(self, name: str) -> Self:
        """How the operator is called in messages, metrics and `explain`."""
        self._node("name").name = name
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Number of subtasks of the operator.

        Raises:
            ConfigError: below 1, or above the max parallelism.
        """
        node = self._node("set_parallelism")
        node.parallelism = check_parallelism(parallelism, node.max_parallelism, f"operator {node.name!r}")
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Number of key groups of the operator: the most subtasks that it can ever be scaled to."""
        node = self._node("set_max_parallelism")
        node.max_parallelism = check_max_parallelism(
            max_parallelism, node.parallelism, f"operator {node.name!r}"
        )
        return self

    def slot_sharing_group(self, group: str) -> Self:
        """Operators of different groups never share a slot; those behind it inherit the group."""
        if not group:
            raise ConfigError("a slot sharing group needs a name")
        self._node("slot_sharing_group").slot_sharing_group = group
        return self

    def disable_chaining(self) -> Self:
        """The operator gets a task of its own."""
        self._node("disable_chaining").chain = False
        return self
