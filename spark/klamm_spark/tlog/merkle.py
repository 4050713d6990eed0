"""RFC 6962's Merkle tree: roots, inclusion and consistency proofs, and their checks. Nothing here reads a file.

A tree gets its hashes from a function: `full(level, index)` returns the hash of a complete subtree, which has `1 <<
level` leaves from number `index << level` on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

Node = Callable[[bytes, bytes], bytes]
"""The hash of two children."""
Full = Callable[[int, int], bytes]
"""The hash of a complete subtree, by level and index."""
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
MOST_LEAVES: Final = 1 << 62
MOST_HASHES: Final = 63
"""The most hashes in a proof."""


class ProofError(ValueError):
    """A proof does not prove what it should."""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def _split(size: int) -> int:
    """Return the number of leaves of a tree's left child: the largest power of two below the tree's size."""
    return 1 << ((size - 1).bit_length() - 1)


class Tree:
    """A Merkle tree, which computes roots and proofs."""

    def __init__(self, full: Full, node: Node = node_hash) -> None:
        self._full = full
        self._node = node

    def root(self, size: int) -> bytes:
        """Return the root of the first `size` leaves."""
        return self._range(0, size) if size else EMPTY_ROOT

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the proof that a leaf is one of the first `size` leaves."""
        proof = []
        low, high = 0, size
        while high - low > 1:
            middle = low + _split(high - low)
            if index < middle:
                proof.append(self._range(middle, high))
                high = middle
            else:
                proof.append(self._range(low, middle))
                low = middle
        return proof[::-1]

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Return the proof that the first `new` leaves begin with the first `old` leaves."""
        if old in (0, new):
            return []
        proof = []
        low, high = 0, new
        while high != old:
            middle = low + _split(high - low)
            if old <= middle:
                proof.append(self._range(middle, high))
                high = middle
            else:
                proof.append(self._range(low, middle))
                low = middle
        if low:
            # If the range is the whole old tree, it is left out, because the verifier already has its root.
            proof.append(self._range(low, high))
        return proof[::-1]

    def _range(self, low: int, high: int) -> bytes:
        size = high - low
        if size & (size - 1) == 0:
            return self._full(size.bit_length() - 1, low // size)
        middle = low + _split(size)
        return self._node(self._range(low, middle), self._range(middle, high))


def tree_of(leaves: Sequence[bytes], node: Node = node_hash) -> Tree:
    """Return the tree of leaves whose hashes are in memory."""
    levels = [leaves]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([node(below[at], below[at + 1]) for at in range(0, len(below) - 1, 2)])
    return Tree(lambda level, index: levels[level][index], node)


def root_of(leaves: Sequence[bytes], node: Node = node_hash) -> bytes:
    """Return the root of leaves with these hashes."""
    return tree_of(leaves, node).root(len(leaves))


def path_root(leaf: bytes, index: int, size: int, path: Sequence[bytes], node: Node = node_hash) -> bytes:
    """Return the root of `size` leaves that follows from an inclusion proof, `path`. Raises ProofError."""
    if not 0 <= index < size <= MOST_LEAVES:
        raise ProofError(f"no tree of {size:,} leaves has a leaf {index:,}")
    if size == 1:
        if path:
            raise ProofError("the proof has too many hashes")
        return leaf
    if not path:
        raise ProofError("the proof has too few hashes")
    *rest, last = path
    middle = _split(size)
    if index < middle:
        return node(path_root(leaf, index, middle, rest, node), last)
    return node(last, path_root(leaf, index - middle, size - middle, rest, node))


def check_consistency(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Raise ProofError unless the tree of `new` leaves begins with the tree of `old` leaves. `old` is at least 1."""
    if not 0 < old <= new <= MOST_LEAVES:
        raise ProofError(f"no tree of {new:,} leaves begins with {old:,}")
    rest = list(proof)

    def both(size: int, whole: int, is_old_tree: bool) -> tuple[bytes, bytes]:
        """Return the roots of the old part and of the whole of a subtree."""
        if size == whole and is_old_tree:
            return old_root, old_root
        if not rest:
            raise ProofError("the proof has too few hashes")
        last = rest.pop()
        if size == whole:
            return last, last
        middle = _split(whole)
        if size <= middle:
            part, left = both(size, middle, is_old_tree)
            return part, node_hash(left, last)
        part, right = both(size - middle, whole - middle, False)
        return node_hash(last, part), node_hash(last, right)

    roots = both(old, new, True)
    if rest:
        raise ProofError("the proof has too many hashes")
    if roots != (old_root, new_root):
        raise ProofError("the proof gives other roots")
