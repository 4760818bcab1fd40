"""Contracts of import-linter that a new room need not be added to."""

from __future__ import annotations

from typing import Any, cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.contracts.layers import Layer, LayersContract, ModuleTail
from importlinter.domain.imports import ModuleExpression

OTHERS = "others"


class ClosedRoomsContract(Contract):
    """Rooms are closed: what others may import stands in their `__init__.py`.

    `rooms`: packages whose modules are imported by modules of the same package only; ``a.b.*`` are all
    packages in a.b. `open_rooms`: those of them that are not closed.
    """

    rooms = fields.SetField(subfield=fields.StringField())
    open_rooms = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Finds imports of a room's modules by strangers."""
        strangers = []
        for room in sorted(self._closed(graph)):
            inside = graph.find_descendants(room)
            for module in sorted(inside):
                importers = graph.find_modules_that_directly_import(module) - inside - {room}
                strangers += [(importer, module) for importer in sorted(importers)]
        return ContractCheck(kept=not strangers, metadata={"strangers": strangers})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Prints them."""
        for importer, module in check.metadata["strangers"]:
            output.print_error(f"{importer} imports {module}, past the face of its room", bold=False)

    def _closed(self, graph: ImportGraph) -> set[str]:
        closed = set[str]()
        for room in self.rooms:  # type: ignore[attr-defined]
            if room.endswith(".*"):
                closed |= {child for child in graph.find_children(room[:-2]) if graph.find_children(child)}
            else:
                assert room in graph.modules, f"no room {room}"
                closed.add(room)
        return closed - (self.open_rooms or set())  # type: ignore[operator]


class LayersWithOthersContract(LayersContract):
    """Layers of one container; the layer ``others`` is every room in it that no layer names. Rooms of a layer
    do not know each other."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Checks the layers, with the others in their place."""
        layers = cast("list[Layer]", self.layers)
        [container] = cast("list[ModuleExpression]", self.containers)
        named = {tail.name for layer in layers for tail in layer.module_tails}
        rooms = {child.rpartition(".")[2] for child in graph.find_children(container.expression)} - named
        others = Layer({ModuleTail(room) for room in rooms})
        placeholder = Layer({ModuleTail(OTHERS)})
        assert placeholder in layers, f"a layer {OTHERS!r}"
        self.layers = cast("Any", [others if layer == placeholder else layer for layer in layers])
        return super().check(graph, verbose)
