"""Damage to what JSON says: hostile values, missing and repeated members, nodes that changed places."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fuzz import hostile

if TYPE_CHECKING:
    from random import Random

__all__ = ["damage", "damaged_lines"]

_MAX_COPIED = 100_000
_Node = dict[str, Any] | list[Any]


def damage(content: bytes, random: Random) -> bytes | None:
    """JSON with up to twelve values changed; None where the content is no JSON."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return None
    for _ in range(random.choice([1, 1, 2, 4, 12])):
        _change(tree, random)
    return hostile.deepen(json.dumps(tree)).encode()


def damaged_lines(content: bytes, random: Random) -> bytes | None:
    """JSON lines, a few of which are damaged, gone, repeated or elsewhere; None where the first is no JSON object."""
    lines = content.splitlines()
    if len(lines) < 2 or damage(lines[0], random) is None:
        return None
    for _ in range(random.choice([1, 2, 5])):
        index = random.randrange(len(lines))
        action = random.randrange(5)
        if action == 0:
            lines.insert(random.randrange(len(lines)), lines[index])
        elif action == 1 and len(lines) > 1:
            del lines[index]
        else:
            lines[index] = damage(lines[index], random) or lines[index]
    return random.choice([b"\n", b"\r\n"]).join(lines) + random.choice([b"\n", b""])


def _inner(tree: object, random: Random) -> _Node | None:
    """An object or list somewhere in the tree, deep ones as likely as not."""
    node = tree
    inner = None
    while isinstance(node, dict | list) and node:
        inner = node
        if random.random() < 0.2:
            break
        node = node[random.choice(list(node))] if isinstance(node, dict) else random.choice(node)
    return inner


def _change(tree: object, random: Random) -> None:
    node = _inner(tree, random)
    if node is None:
        return
    action = random.randrange(8)
    key: Any = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
    if action == 0:
        del node[key]
    elif action == 1:
        _repeat(node, key, random)
    elif action == 2:
        other = json.dumps(_inner(tree, random))
        node[key] = json.loads(other) if len(other) < _MAX_COPIED else None
    elif action == 3:
        node[key] = _of_another_type(node[key])
    elif action == 4 and isinstance(node, list):
        random.shuffle(node)
    else:
        node[key] = hostile.json_value(random)


def _repeat(node: _Node, key: Any, random: Random) -> None:  # noqa: ANN401 (a key or a number)
    if isinstance(node, dict):
        node[hostile.text(random)] = node.pop(key)
    else:
        node[key:key] = [node[key]] * random.choice([1, 2, 40])


def _of_another_type(value: object) -> object:
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() else [value]
    if isinstance(value, int | float):
        return str(value)
    return list(value.values()) if isinstance(value, dict) else {"": value}
