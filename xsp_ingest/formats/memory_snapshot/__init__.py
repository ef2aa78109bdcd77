"""PyTorch's records of memory: snapshots of the CUDA allocator and exported memory timelines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.content import Probe
from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_ingest.ingester import Options

__all__ = ["MEMORY_SNAPSHOT"]

_PICKLE = re.compile(rb"\A\x80[\x02-\x05].{0,64}?segments", re.DOTALL)
_SNAPSHOT = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"segments"\s*:\s*\[')
_EVENTS = re.compile(rb"\A\s*\[\s*\[\s*-?\d+\s*,\s*[0-4]\s*,\s*-?\d+\s*,\s*\d{1,2}\s*\]\s*[,\]]")
_SIZES = re.compile(rb"\A\s*\[\s*\[\s*-?\d{1,17}\s*(?:,\s*\d{15,17}\s*){1,}")


class _MemorySnapshot(Ingester):
    name: str = "memory_snapshot"
    title: str = (
        "PyTorch memory snapshot as JSON, and export_memory_timeline's files (.json, .raw.json.gz): memory in use;"
        " seen: torch 2.13"
    )

    def sniff(self, probe: Probe) -> Match:
        """A pickled or JSON snapshot, or a list of a timeline's events or times."""
        text = probe.text
        return Match.exact_if(any(head.match(text) for head in (_PICKLE, _SNAPSHOT, _EVENTS, _SIZES)))

    def read(self, path: Path, options: Options) -> RawTrace:
        """Memory in use over time; XspError for a pickle, which is never opened."""
        from xsp_ingest.formats.memory_snapshot.reader import read_events, read_sizes, read_snapshot

        text = Probe(path).text
        if _PICKLE.match(text):
            raise XspError(
                "the memory snapshot is a pickle, which XSP never opens: opening one runs whatever code it holds",
                path=path,
                advice="Write it as JSON instead: json.dump(torch.cuda.memory._snapshot(), file)",
            )
        free: Mapping[int, int] = {}
        if _SNAPSHOT.match(text):
            snapshot = read_snapshot(path, keep_private=options.keep_private)
            moments, free, findings = snapshot.moments, snapshot.free, snapshot.findings
        else:
            moments, findings = (read_events if _EVENTS.match(text) else read_sizes)(path)
        first, last = moments["time_ns"].to_list()[0], moments["time_ns"].max()
        counted = moments.sort("time_ns", maintain_order=True).with_columns(pl.col("time_ns") - first)
        tables = {name: frame_of(name) for name in RAW_TABLES} | {
            "allocations": frame_of("allocations", counted),
            "counters": _free_blocks(free, last - first if isinstance(last, int) else 0),
        }
        facts = RunFacts(profiler="PyTorch memory record", framework="pytorch", epoch_ns=first)
        return RawTrace(tables, facts, tuple(f for f in findings if f.count))


def _free_blocks(free: Mapping[int, int], end_ns: int) -> pl.DataFrame:
    """The largest free block of each device, as known at the end."""
    rows = {"device_id": list(free), "value": [float(size) for size in free.values()]}
    labels = {"counter": pl.lit("largest_free_block_bytes"), "unit": pl.lit("byte"), "time_ns": pl.lit(end_ns)}
    return frame_of("counters", pl.DataFrame(rows).with_columns(**labels)) if free else frame_of("counters")


MEMORY_SNAPSHOT = _MemorySnapshot()
