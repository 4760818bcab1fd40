"""Connected and strongly connected components of graphs. Large ones have the nodes 0, 1, …, size - 1."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]
N = TypeVar("N", bound=Hashable)


def joined(nodes: Iterable[N], pairs: Iterable[tuple[N, N]]) -> list[list[N]]:
    """The components that `pairs` connect; components and their members in the order of `nodes`."""
    roots = {node: node for node in nodes}

    def root(node: N) -> N:
        while roots[node] != node:
            roots[node] = roots[roots[node]]
            node = roots[node]
        return node

    for first, second in pairs:
        roots[root(second)] = root(first)
    components: dict[N, list[N]] = {}
    for node in roots:
        components.setdefault(root(node), []).append(node)
    return list(components.values())


def connected(size: int, left: Labels, right: Labels) -> Labels:
    """The smallest node of each node's component; edge i joins `left[i]` and `right[i]`.

    Works on whole arrays: in each round the roots at both ends of an edge are joined to the smaller one, and
    all paths are shortened, so that a few rounds are enough.

    >>> connected(5, np.array([1, 3]), np.array([4, 1])).tolist()
    [0, 1, 2, 1, 1]
    """
    labels = np.arange(size, dtype=np.int64)
    while len(left):
        ends = labels[left], labels[right]
        apart = ends[0] != ends[1]
        if not apart.any():
            break
        left, right = left[apart], right[apart]
        first, second = ends[0][apart], ends[1][apart]
        np.minimum.at(labels, np.maximum(first, second), np.minimum(first, second))
        while True:
            shorter = labels[labels]
            if np.array_equal(shorter, labels):
                break
            labels = shorter
    return labels


def strongly_connected(successors: Sequence[Sequence[int]]) -> list[int]:
    """A number of each node's strongly connected component (Tarjan 1972, without recursion).

    >>> a, b, c = strongly_connected([[1], [2, 0], []])
    >>> a == b, b == c
    (True, False)
    """
    size = len(successors)
    component = [-1] * size
    low = [0] * size
    index = [0] * size  # 0: not seen yet
    seen = 0
    open_nodes: list[int] = []
    for start in range(size):
        if index[start]:
            continue
        path = [(start, 0)]
        while path:
            node, place = path.pop()
            if place == 0:
                seen += 1
                index[node] = low[node] = seen
                open_nodes.append(node)
            else:  # back from the successor before `place`
                low[node] = min(low[node], low[successors[node][place - 1]])
            following = successors[node]
            while place < len(following):
                target = following[place]
                place += 1
                if not index[target]:
                    path += [(node, place), (target, 0)]
                    break
                if component[target] < 0:
                    low[node] = min(low[node], index[target])
            else:
                if low[node] == index[node]:
                    while component[node] < 0:
                        component[open_nodes.pop()] = node
    return component
