"""What lies below a URL as parts, told from names alone: workers read it, not whoever starts the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp.batch.locations import is_http, list_files
from xsp.batch.trace_inputs import TraceInputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp.batch.locations import Entry

__all__ = ["parts"]

_MANIFEST = "manifest.json"
_DESCRIPTION = "run.json"


def parts(url: str) -> list[TraceInputs]:
    """Bundles (by `manifest.json`), run sets (by `run.json`), and every other file as a trace of its own."""
    entries = list_files(url)
    one = entries[0] if len(entries) == 1 else None
    if one is not None and one.below == one.url.rpartition("/")[2]:
        return [TraceInputs((one.url,), one.below, discovered=one.below not in url)]
    folders = _folders(entries)
    end = "/" if url.endswith("/") and is_http(url) else ""
    traces = {f: TraceInputs((f + end,), below) for f, below in folders.items()}
    rest = [
        TraceInputs((e.url,), e.below)
        for e in entries
        if e.size != 0
        and not any(e.url.startswith(f"{f}/") for f in folders)
        and not e.below.rpartition("/")[2].startswith(".")
    ]
    return sorted((*traces.values(), *rest), key=lambda part: part.inputs)


def _folders(entries: Sequence[Entry]) -> dict[str, str]:
    """Folders that are one input, by URL, with where they lie: bundles, and what holds run folders or is one."""
    inputs: dict[str, str] = {}
    runs: dict[str, str] = {}
    for entry in entries:
        folder, _, name = entry.url.rpartition("/")
        below = entry.below.rpartition("/")[0]
        if name == _MANIFEST:
            inputs[folder] = below or folder.rpartition("/")[2]
        elif name == _DESCRIPTION:
            runs[folder] = below or folder.rpartition("/")[2]
    for folder, below in runs.items():
        parent = folder.rpartition("/")[0]
        siblings = [other for other in runs if other.rpartition("/")[0] == parent]
        if len(siblings) > 1 and "/" in below:
            inputs[parent] = below.rpartition("/")[0]
        elif not any(folder.startswith(f"{other}/") for other in inputs):
            inputs[folder] = below
    return inputs
