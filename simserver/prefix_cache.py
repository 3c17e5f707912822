"""A radix tree over prompts: how many leading tokens of a new prompt were computed before, and what is evicted."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class _Node:
    edge: list[str]
    parent: _Node | None
    children: dict[str, _Node] = field(default_factory=dict)
    used: int = 0


def _common(a: list[str], b: list[str]) -> int:
    """Returns the length of the common prefix, by halving: slices are compared in C."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high - 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low if a[low] != b[low] else low + 1


class PrefixCache:
    """Token sequences seen, least recently used leaves evicted beyond `capacity` tokens."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.tokens = 0
        self._clock = 0
        self._root = _Node([], None)

    def match(self, tokens: list[str]) -> int:
        """Returns how many leading tokens are cached, and marks them as used."""
        self._clock += 1
        node, position = self._root, 0
        while position < len(tokens):
            child = node.children.get(tokens[position])
            if child is None:
                break
            child.used = self._clock
            length = _common(child.edge, tokens[position : position + len(child.edge)])
            position += length
            if length < len(child.edge):
                break
            node = child
        return position

    def insert(self, tokens: list[str]) -> None:
        """Adds a sequence, and evicts others when there are too many tokens."""
        self._clock += 1
        node, position = self._root, 0
        while position < len(tokens):
            child = node.children.get(tokens[position])
            if child is None:
                child = _Node(tokens[position:], node, used=self._clock)
                node.children[tokens[position]] = child
                self.tokens += len(child.edge)
                break
            length = _common(child.edge, tokens[position : position + len(child.edge)])
            position += length
            if length < len(child.edge):
                child = self._split(child, length)
            child.used = self._clock
            node = child
        if self.tokens > self.capacity:
            self._evict(self.capacity)

    def clear(self) -> None:
        """Forgets everything."""
        self._root = _Node([], None)
        self.tokens = 0

    def shrink_to(self, tokens: int) -> None:
        """Evicts until at most so many tokens are left: running requests need the room."""
        if self.tokens > tokens:
            self._evict(max(0, tokens))

    def _split(self, node: _Node, length: int) -> _Node:
        assert node.parent is not None
        upper = _Node(node.edge[:length], node.parent, used=node.used)
        node.parent.children[upper.edge[0]] = upper
        node.edge = node.edge[length:]
        node.parent = upper
        upper.children[node.edge[0]] = node
        return upper

    def _evict(self, target: int) -> None:
        leaves = sorted(self._leaves(), key=lambda node: node.used)
        for leaf in leaves:
            node = leaf
            while self.tokens > target and node.parent is not None and not node.children:
                del node.parent.children[node.edge[0]]
                self.tokens -= len(node.edge)
                node = node.parent
            if self.tokens <= target:
                return

    def _leaves(self) -> list[_Node]:
        found, stack = [], list(self._root.children.values())
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(node.children.values())
            else:
                found.append(node)
        return found
