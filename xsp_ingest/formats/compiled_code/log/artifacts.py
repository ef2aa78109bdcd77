"""Reads the log that PyTorch writes of its compiler under TORCH_TRACE: graphs, generated code and provenance."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from contextlib import suppress
from itertools import takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from xsp_ingest.files.content import lines
from xsp_ingest.files.values import characters
from xsp_ingest.formats.compiled_code.code import CompiledCode, Graph, KernelCall, Module, event_name
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["modules_of_nodes", "nodes_with_work", "read_log"]

_NODE = re.compile(r"^\s+(\w+)(?::\s*\"[^\"]*\")? = (.*)$")
_PARAMETER = re.compile(r"\bl_\w+?_modules_(\w+?)_(?:parameters|buffers)_\w*?_(?!\w)")
_SOURCE_COMMENT = re.compile(r"^\s+# File: (\S+:\d+)")
_OPERATOR = re.compile(r"torch\.ops\.\w+\.(\w+)\.\w+\(")
_VIEWS = frozenset(
    """alias as_strided detach expand permute reshape select slice split split_with_sizes squeeze t transpose unbind
    unsqueeze view _unsafe_view""".split()  # noqa: SIM905 (as a list it is a page long)
)
_Path = tuple[str, ...]


def modules_of_nodes(text: str) -> dict[str, str]:
    """By node the path of its module, as far as it is known.

    A node that reads no parameter, but stands between two that do in one line of the source, is of the innermost
    module that both are in.
    """
    out: dict[str, str] = {}
    for line in _by_source(text):
        paths = [_common([_path(written) for written in _PARAMETER.findall(expression)]) for _, expression in line]
        for index, (node, _) in enumerate(line):
            before = next((path for path in reversed(paths[:index]) if path), None)
            behind = next((path for path in paths[index + 1 :] if path), None)
            path = paths[index] or (_common([before, behind]) if before and behind else ())
            if path:
                out[node] = ".".join(path)
    return out


def _by_source(text: str) -> list[list[tuple[str, str]]]:
    """The nodes with their expressions, those of one line of the source together."""
    groups: list[list[tuple[str, str]]] = [[]]
    source = ""
    for line in text.splitlines():
        if match := _SOURCE_COMMENT.match(line):
            if match[1] != source:
                groups.append([])
            source = match[1]
        elif (match := _NODE.match(line)) and source:
            groups[-1].append((match[1], match[2].partition(";")[0]))
    return groups


def _path(written: str) -> _Path:
    """`layers`, `0`, `norm` of `layers_modules_0_modules_norm`."""
    return tuple(written.split("_modules_"))


def _common(paths: Sequence[_Path]) -> _Path:
    return tuple(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False)))


def nodes_with_work(text: str) -> dict[str, str]:
    """By node of a graph after the last pass its operator, without those that only see memory otherwise."""
    nodes = (match for line in text.splitlines() if (match := _NODE.match(line)))
    operators = ((node[1], operator[1]) for node in nodes if (operator := _OPERATOR.match(node[2])))
    return {node: operator for node, operator in operators if operator not in _VIEWS}


_RECORD = re.compile(rb"^[VIWE]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+:\d+\] (\{.*\})\s*$")
_MAX_PAYLOAD_BYTES = 1 << 26
_TRACED, _LOWERED, _CODE = "dynamo_output_graph", "inductor_post_grad_graph", "inductor_output_code"
_MAPPINGS = "inductor_provenance_tracking_node_mappings"
_STACKS = "inductor_provenance_tracking_kernel_stack_traces"
_KEYS = ("fx_graph_cache_miss", "fx_graph_cache_hit", "fx_graph_cache_bypass")
_KEPT = (_TRACED, _LOWERED, _CODE, _MAPPINGS, _STACKS, *_KEYS)
_KEY = re.compile(r'"key": "(\w+)"')
_AOT_ID = re.compile(r"# AOT ID: \['(\d+)_(\w+)'\]")
_HANDLE = re.compile(r"\[Provenance debug handles\] (\S+:\d+)\s*$", re.MULTILINE)
_STACK_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def read_log(path: Path) -> CompiledCode:
    """The graphs of the log; XspError where it does not say which nodes a kernel was made of."""
    code = _Log()
    for name, compile_id, payload in _artifacts(path):
        code.add(name, compile_id, payload)
    if not any(graph.kernels for graph in code.graphs.values()):
        raise XspError(
            "the log does not say what compiled kernels were made of",
            path=path,
            advice="Set INDUCTOR_PROVENANCE=1 beside TORCH_TRACE, and start with empty caches",
        )
    return CompiledCode([Module(name, None, name) for name in code.modules], code.graphs)


def _artifacts(path: Path) -> Iterator[tuple[str, str, str]]:
    """Name, id of the compilation and payload of those that are used."""
    current: tuple[str, str] | None = None
    payload: list[bytes] = []
    size = 0
    for piece in lines(path):
        for line in piece.splitlines():
            if line.startswith(b"\t"):
                size += len(line) if current else 0
                if current and size <= _MAX_PAYLOAD_BYTES:
                    payload.append(line[1:])
                continue
            if current:
                yield *current, b"\n".join(payload).decode(errors="replace")
            current, payload, size = _used_artifact(line), [], 0
    if current:
        yield *current, b"\n".join(payload).decode(errors="replace")


def _used_artifact(line: bytes) -> tuple[str, str] | None:
    match = _RECORD.match(line)
    if match is None:
        return None
    try:
        record = json.loads(match[1])
    except (ValueError, RecursionError):
        return None
    artifact = record.get("artifact")
    name = (
        artifact.get("name") if isinstance(artifact, dict) else next((k for k in (_TRACED, _CODE) if k in record), None)
    )
    if name not in _KEPT:
        return None
    return str(name), characters(f"{record.get('frame_id')}/{record.get('frame_compile_id')}")


class _Log:
    """The graphs so far, and what was said last of the one under way."""

    def __init__(self) -> None:
        self.graphs: dict[str, Graph] = {}
        self.modules: dict[str, int] = {}
        self._of_nodes: dict[str, dict[str, str]] = {}
        self._parts: dict[str, dict[str, str]] = defaultdict(dict)

    def add(self, name: str, compile_id: str, payload: str) -> None:
        """Takes in an artifact; the key of a graph in the cache comes behind all others of it."""
        if name == _TRACED:
            self._of_nodes[compile_id] = modules_of_nodes(payload)
        elif name not in _KEYS:
            self._parts[compile_id][name] = payload
        elif key := _KEY.search(payload):
            self.graphs[key[1]] = self._graph(key[1], compile_id, self._parts.pop(compile_id, {}))

    def _graph(self, region: str, compile_id: str, parts: Mapping[str, str]) -> Graph:
        code = parts.get(_CODE, "")
        number = _AOT_ID.search(code)
        stacks, mappings = _object(parts.get(_STACKS)), _object(parts.get(_MAPPINGS))
        nodes, origins = (_lists(mappings.get(key)) for key in ("cppCodeToPost", "postToPre"))
        works = nodes_with_work(parts.get(_LOWERED, ""))
        modules = self._of_nodes.get(compile_id, {})
        kernels = []
        for handle in _HANDLE.findall(code):
            own = nodes.get(handle, [])
            work = [node for node in own if node in works] or own
            paths = {modules[each] for node in work for each in origins.get(node, []) if each in modules}
            shares = [(self.modules.setdefault(each, len(self.modules)), 1 / len(paths)) for each in sorted(paths)]
            operators = list(dict.fromkeys(f"aten::{works[node]}" for node in work if node in works))
            name = handle.rpartition(":")[0]
            if not operators and (operator := event_name(name)) != name:
                operators = [operator]
            kernels.append(KernelCall(name, operators, _sources(stacks.get(handle)), shares))
        pair = f"{compile_id} {number[1]}" if number else None
        return Graph(region, pair, number is not None and number[2] == "backward", kernels)


def _object(text: str | None) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        content = json.loads(text or "{}")
        if isinstance(content, dict):
            return content
    return {}


def _lists(content: object) -> dict[str, list[str]]:
    """The entries that are lists of texts."""
    entries = content.items() if isinstance(content, dict) else ()
    return {key: [each for each in value if isinstance(each, str)] for key, value in entries if isinstance(value, list)}


def _sources(stacks: object) -> Sequence[str]:
    """`model.py:12` of the innermost line of each stack."""
    texts = [each for each in stacks if isinstance(each, str)] if isinstance(stacks, list) else []
    innermost = [frames[-1] for each in texts if (frames := _STACK_FRAME.findall(each))]
    return list(dict.fromkeys(characters(f"{PurePath(file).name}:{line}") for file, line in innermost))
