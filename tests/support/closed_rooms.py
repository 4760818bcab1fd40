"""A contract of import-linter: rooms are closed: what others may import stands in its `__init__.py`."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class ClosedRoomsContract(Contract):
    """`rooms`: packages whose modules are imported by modules of the same package only."""

    rooms = fields.SetField(subfield=fields.ModuleField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Finds imports of a room's modules by strangers."""
        strangers = []
        for room in sorted(room.name for room in self.rooms):  # type: ignore[attr-defined]
            inside = graph.find_descendants(room)
            for module in sorted(inside):
                importers = graph.find_modules_that_directly_import(module) - inside - {room}
                strangers += [(importer, module) for importer in sorted(importers)]
        return ContractCheck(kept=not strangers, metadata={"strangers": strangers})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Prints them."""
        for importer, module in check.metadata["strangers"]:
            output.print_error(f"{importer} imports {module}, past the face of its room", bold=False)
