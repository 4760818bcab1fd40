"""Compiles modules with loops to files of machine code.

    NUMBA_CPU_NAME=… python -m unistream.connector.common.loop_compiler LEVEL,… FOLDER MODULE…

in a process of its own: numba takes one processor for its target as long as a process lives, and the user's
functions in a worker should have the worker's own. numba makes optimized LLVM IR of each loop, llvmlite the
object code of all that a module has. What this relies on of numba: `inspect_llvm`, and how its functions call
each other (`machine_code.CompiledLoop`).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
import msgspec
from numba import types

from unistream.connector.common.compiled import EXPORTS, Export
from unistream.connector.common.machine_code import CodeFile, LoopCode, file_name, llvm_name

_OF_THE_SYSTEM: Final = ("memcpy", "memmove", "memset")
"""Functions that object code may leave to the C library of the process."""
OPTIMIZATION: Final = 3


def code_files(module: str, levels: Sequence[str]) -> dict[str, CodeFile]:
    """The loops of a module as machine code, for each level of processors.

    Raises:
        ValueError: one of them needs Python's or numba's help.
    """
    importlib.import_module(module)
    whole: Any = None
    loops = {}
    for name, export in EXPORTS[module].items():
        compiled, symbol = _compiled(name, export)
        loops[name] = LoopCode(symbol, export.arguments)
        if whole is None:
            whole = compiled
        else:
            whole.link_in(compiled)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(whole.triple)
    machines = {
        level: target.create_target_machine(
            cpu=llvm_name(level), opt=OPTIMIZATION, reloc="pic", codemodel="small"
        )
        for level in levels
    }
    return {level: CodeFile(loops, machine.emit_object(whole)) for level, machine in machines.items()}


def _compiled(name: str, export: Export) -> tuple[Any, str]:
    """A loop as optimized IR, and the name of its function."""
    export.loop.compile(export.types)
    (signature,) = export.loop.nopython_signatures
    if signature.return_type not in (types.none, types.int64):
        raise ValueError(f"{name} returns {signature.return_type}, which is neither a number nor nothing")
    found = llvm.parse_assembly(export.loop.inspect_llvm(export.loop.signatures[0]))
    functions = list(found.functions)
    missing = [one.name for one in functions if one.is_declaration and not _is_given(one.name)]
    if missing:
        raise ValueError(f"{name} calls {', '.join(missing)}: it allocates, or calls what is not compiled")
    (symbol,) = [
        one.name for one in functions if not one.is_declaration and one.linkage == llvm.Linkage.external
    ]
    return found, symbol


def _is_given(function: str) -> bool:
    return function.startswith("llvm.") or function in _OF_THE_SYSTEM


def main(arguments: Sequence[str]) -> None:
    levels, folder, *modules = arguments
    for module in modules:
        for level, made in code_files(module, levels.split(",")).items():
            path = Path(folder) / file_name(module, level)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(msgspec.msgpack.encode(made))
            part.rename(path)


if __name__ == "__main__":
    main(sys.argv[1:])
