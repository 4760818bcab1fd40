"""Describes which part of a pipeline cannot be pickled.

Pickle reports "cannot pickle '_thread.lock' object", but not whose lock it is. From the operator that cannot
be pickled this descends, from each object to its first part that cannot be pickled either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from unistream.model.chain import ChainNode, JobCode

DEPTH_MAX: Final = 20  # of the search

_OWN: Final = "unistream."


def what_is_unsendable(code: JobCode, dumps: Callable[[object], object]) -> str:
    """The operator and the part of its function, as a clause.

    Args:
        code: Its pickle failed.
        dumps: Pickles an object as it would be; raises if that fails.

    Returns:
        Empty: every operator by itself can be pickled.
    """
    for chain in code.chains.values():
        for node in chain.nodes:
            if _fails(node.operator, dumps):
                return _described(node, dumps)
    return ""


def _described(node: ChainNode, dumps: Callable[[object], object]) -> str:
    place, label, way = node.operator, "", [node.operator]
    while len(way) < DEPTH_MAX:
        found = _failing_part(place, way, dumps)
        if found is None:
            break
        owner, (name, place) = place, found
        label = label if type(owner).__module__.startswith(_OWN) else name
        way.append(place)
    kind = f"a {type(place).__module__}.{type(place).__qualname__}".replace(" builtins.", " ")
    where = f"operator {node.name!r} (uid {node.uid!r})"
    return f"{where}: {label} is {kind}" if label else f"{where} holds {kind}"


def _failing_part(
    place: object, way: list[object], dumps: Callable[[object], object]
) -> tuple[str, object] | None:
    try:
        for name, part in _parts(place):
            if not any(part is known for known in way) and _fails(part, dumps):
                return name, part
    except Exception:  # a user's object cannot be inspected: then it is the one that is named
        return None
    return None


def _fails(one: object, dumps: Callable[[object], object]) -> bool:
    try:
        dumps(one)
    except Exception:  # what pickling raises is up to each class
        return True
    return False


def _parts(one: Any) -> Iterator[tuple[str, object]]:
    """The parts that are pickled with it, each with a readable name."""
    if isinstance(one, FunctionType):
        yield from _parts_of_function(one)
    elif isinstance(one, MethodType):
        yield f"the object of {one.__qualname__}", one.__self__
    elif isinstance(one, partial):
        yield from (
            (f"an argument of {_name(one.func)}", part) for part in (*one.args, *one.keywords.values())
        )
        yield f"{_name(one.func)}", one.func
    elif isinstance(one, Mapping):
        yield from ((f"the item {key!r}", part) for key, part in one.items())
    elif isinstance(one, list | tuple | set | frozenset):
        yield from ((f"the item at {place}", part) for place, part in enumerate(one))
    elif isinstance(one, type):
        yield from ((f"{name!r} of class {one.__name__}", part) for name, part in vars(one).items())
    else:
        held = dict(getattr(one, "__dict__", {}))
        for name in (slot for kind in type(one).__mro__ for slot in getattr(kind, "__slots__", ())):
            if hasattr(one, name):
                held[name] = getattr(one, name)
        yield from ((f"{name!r} of {type(one).__name__}", part) for name, part in held.items())
        yield f"class {type(one).__name__}", type(one)


def _parts_of_function(function: FunctionType) -> Iterator[tuple[str, object]]:
    name = _name(function)
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"the variable {variable!r} of {name}", cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    for used in _names(function.__code__):
        if used in function.__globals__:
            yield f"the global {used!r}, which {name} uses,", function.__globals__[used]
    for given in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {name}", given


def _names(code: CodeType) -> Iterator[str]:
    """Names of globals and attributes that it, and functions in it, use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__)).replace("<locals>.", "")
