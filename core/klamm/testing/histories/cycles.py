"""`cycle_in`, which finds cycles in a directed graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Set


def cycle_in(edges: Mapping[int, Set[int]]) -> Iterator[list[int]]:
    """Yield a shortest cycle of each strongly connected component."""
    for component in _components(edges):
        start = min(component)
        if (cycle := _shortest(edges, component, start)) is not None:
            yield cycle


def _components(edges: Mapping[int, Set[int]]) -> Iterator[set[int]]:
    """Yield the components of at least two nodes. This is Tarjan's algorithm without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(edges.get(target, ())))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.add(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        yield component


def _shortest(edges: Mapping[int, Set[int]], component: Set[int], start: int) -> list[int] | None:
    before: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for target in edges.get(node, ()):
            if target == start:
                path = [node]
                while path[-1] != start:
                    path.append(before[path[-1]])
                return path[::-1]
            if target in component and target not in before:
                before[target] = node
                queue.append(target)
    return None
