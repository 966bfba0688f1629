"""Cohorts: how queues and teams lend each other the quota that they do not use. Pure; one flavor, so amounts are whole numbers.

The nodes form a tree: a leaf is a queue, above it is its team, above that are cohorts up to the root. What a node has is its
own quota and what its children lend; it may use that, and borrow from its parent what others there do not use. The rules
are those of hierarchical cohorts in Kueue (KEP-79), of which users of Kubernetes know the words.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """Quota of a queue, a team or a cohort, beside what its children have.

    `borrowing_limit`: how much beyond that it may use; `lending_limit`: how much of what it does not use others may.
    None: no limit. A share of what is lent is counted per `weight`. `recent`: how much a leaf held lately, on average.
    """

    name: str
    parent: str | None = None
    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None
    weight: float = 1.0
    recent: float = 0.0


class Tree:
    """The nodes below one root and what is used of each: a working copy that `use` changes."""

    def __init__(self, nodes: Iterable[Node], used: Mapping[str, int]) -> None:
        """`used`: by the jobs of each leaf."""
        self.nodes = {node.name: node for node in nodes}
        self._paths: dict[str, list[str]] = {}
        self._most: dict[str, int] = {}
        self.total, self.kept = self._totals()
        self._recent = dict.fromkeys(self.nodes, 0.0)
        for node in self.nodes.values():
            for name in self.path(node.name) if node.recent else ():
                self._recent[name] += node.recent
        self.used = dict.fromkeys(self.nodes, 0)
        for leaf, amount in used.items():
            self.use(leaf, amount)

    def use(self, leaf: str, amount: int) -> None:
        """Add to what a leaf uses; a negative amount gives back. Above it counts what it does not have of its own."""
        for name in self.path(leaf):
            before = max(0, self.used[name] - self.kept[name])
            self.used[name] += amount
            amount = max(0, self.used[name] - self.kept[name]) - before
            if not amount:
                return

    def available(self, leaf: str) -> int:
        """Return how much more a leaf may use now; negative where the tree is beyond its quota."""
        return self._available(leaf, self.used)

    def most(self, leaf: str) -> int:
        """Return how much a leaf may use when nobody else uses anything."""
        if leaf not in self._most:
            self._most[leaf] = self._available(leaf, {})
        return self._most[leaf]

    def is_borrowing(self, name: str) -> bool:
        return self.used[name] > self.total[name]

    def path(self, leaf: str) -> list[str]:
        """Return the nodes from a leaf to the root."""
        if leaf not in self._paths:
            names: list[str] = [leaf]
            while (parent := self.nodes[names[-1]].parent) is not None:
                names.append(parent)
            self._paths[leaf] = names
        return self._paths[leaf]

    def share(self, leaf: str) -> tuple[float, ...]:
        """Return what each node above a leaf, and itself, borrows per weight, from below the root down: less comes first.

        What it borrowed lately counts as what it borrows now does.
        """
        return tuple(self._borrowed(name) / self.nodes[name].weight for name in reversed(self.path(leaf)[:-1]))

    def _borrowed(self, name: str) -> float:
        total = self.total[name]
        return max(0, self.used[name] - total) + max(0.0, self._recent[name] - total)

    def lent(self, leaf: str) -> int:
        """Return how much others use of what a leaf, or a node above it, does not use of its own."""
        path = self.path(leaf)
        unused = max((self.total[name] - self.used[name] for name in path[:-1]), default=0)
        beside = (node.name for node in self.nodes.values() if node.parent in path and node.name not in path)
        borrowed = sum(max(0, self.used[name] - self.total[name]) for name in beside)
        return max(0, min(borrowed, unused - max(0, self.available(leaf))))

    def _available(self, leaf: str, used: Mapping[str, int]) -> int:
        path = self.path(leaf)
        root = path[-1]
        found = self.total[root] - used.get(root, 0)
        for name in reversed(path[:-1]):
            node, uses = self.nodes[name], used.get(name, 0)
            if node.borrowing_limit is not None:
                elsewhere = self.total[name] - self.kept[name] - max(0, uses - self.kept[name])
                found = min(found, elsewhere + node.borrowing_limit)
            found += max(0, self.kept[name] - uses)
        return found

    def _totals(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return what each node has with its children, and how much of that it lends to nobody."""
        total = {name: node.nominal for name, node in self.nodes.items()}
        kept = dict.fromkeys(self.nodes, 0)
        for name in sorted(self.nodes, key=lambda one: -len(self.path(one))):
            node = self.nodes[name]
            if node.parent is None:
                continue
            if node.lending_limit is not None:
                kept[name] = max(0, total[name] - node.lending_limit)
            total[node.parent] += total[name] - kept[name]
        return total, kept
