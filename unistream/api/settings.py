"""Settings of an operator: uid, name, parallelism, slot sharing group, chaining."""

from __future__ import annotations

from typing import Self

from unistream.api.graph import GraphBuilder, check_max_parallelism, check_node_name, check_parallelism
from unistream.api.slots import SlotSharingGroup
from unistream.base.errors import ConfigError
from unistream.model.stream_graph import ChainingStrategy, StreamNode


class OperatorSettings:
    """Settings of the operator that produces a stream, or of a sink; each returns the object itself."""

    _builder: GraphBuilder

    def _node(self, what: str) -> StreamNode:
        raise ConfigError(f"{what}: there is no operator here")

    def uid(self, uid: str) -> Self:
        """Stable identity, by which state is found in a savepoint.

        Raises:
            ConfigError: another operator has it.
        """
        self._builder.set_uid(self._node("uid"), uid)
        return self

    def name(self, name: str) -> Self:
        """Name of the operator in messages, metrics and `explain`.

        Raises:
            ConfigError: it has no character, or one that is not printable.
        """
        node = self._node("name")
        node.name, node.uid_name = check_node_name(name), ""
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
        """Number of key groups of the operator, which limits its parallelism for ever."""
        node = self._node("set_max_parallelism")
        node.max_parallelism = check_max_parallelism(
            max_parallelism, node.parallelism, f"operator {node.name!r}"
        )
        return self

    def slot_sharing_group(self, group: str | SlotSharingGroup) -> Self:
        """Operators of different groups never share a slot.

        An operator that is in none takes the group of its inputs if they agree, else ``default``.

        Args:
            group: A name, or a group with the resources of one slot.

        Raises:
            ConfigError: the group had other resources before.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
        >>> numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
        >>> heavy = us.SlotSharingGroup("heavy", cpu_cores=2, task_memory="512 mb")
        >>> _ = numbers.filter(us.col("n") > 3).slot_sharing_group(heavy).print()
        >>> graph, _ = env.job_graph()
        >>> [vertex.slot_sharing_group for vertex in graph.vertices]
        ['default', 'heavy']
        """
        node = self._node("slot_sharing_group")
        node.slot_sharing_group = self._builder.declare(group)
        return self

    def co_location_group(self, name: str) -> Self:
        """Subtask i of all operators with the same name here runs in the same slot.

        They need equal parallelism, one slot sharing group, and to be connected by pipelined exchanges.
        """
        if not isinstance(name, str):
            raise ConfigError(f"the name of a co-location group is text, not {name!r}")
        if not name:
            raise ConfigError("a co-location group needs a name")
        self._node("co_location_group").colocation_group = name
        return self

    def start_new_chain(self) -> Self:
        """The operator does not share the task of the one before it; those after it may share its own.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
        >>> numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
        >>> _ = numbers.filter(us.col("n") > 3).start_new_chain().print()
        >>> graph, _ = env.job_graph()
        >>> [vertex.name for vertex in graph.vertices]
        ['numbers', 'filter -> print']
        """
        self._node("start_new_chain").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self) -> Self:
        """The operator gets a task of its own."""
        self._node("disable_chaining").chaining = ChainingStrategy.NEVER
        return self
