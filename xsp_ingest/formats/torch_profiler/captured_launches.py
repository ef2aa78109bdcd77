"""What launches that were captured into a graph were of: ROCm writes it beside the call, for it has no kernel yet."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.content import read_all
from xsp_ingest.files.json_values import characters, int64, json_integer
from xsp_ingest.formats.torch_profiler import categories as cat
from xsp_ingest.formats.torch_profiler import refusal
from xsp_ingest.link.distinct_texts import matches
from xsp_ingest.staging.raw import frame_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["captured_launches"]

_BEGINS = r"(?i)^(cuda|cu|hip)StreamBeginCapture"
_LAUNCH = re.compile(
    r'\{\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"(?:' + "|".join(cat.CALL) + r')"\s*,\s*"name"\s*:\s*"[^"]*Launch'
)
_AXES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
_KEYS = ("process_id", "correlation_id", "name")
_FACTS: dict[str, pl.DataType] = {
    "process_id": pl.Int64(),
    "correlation_id": pl.Int64(),
    "name": pl.String(),
    "kernel_name": pl.String(),
    **{axis: pl.Int64() for axis in _AXES},
}


def captured_launches(spans: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The staging table `launches`; empty unless a graph was captured, as it takes the file's text once more."""
    if not matches(spans["name"], _BEGINS).any():
        return frame_of("launches")
    facts = pl.DataFrame([_facts(event) for event in _events(path)], schema=_FACTS, orient="row")
    named = facts.drop_nulls(["correlation_id", "kernel_name"])
    calls = spans.select("row", "process_id", "correlation_id", pl.col("name").cast(pl.String))
    first = named.unique(list(_KEYS), keep="first", maintain_order=True)
    return frame_of("launches", calls.join(first, on=list(_KEYS), how="inner", maintain_order="left"))


def _events(path: Path) -> Iterator[Mapping[str, object]]:
    """The launches as they stand in the file: scanners keep known arguments only."""
    text = read_all(path, damaged=refusal.truncated).decode("utf-8", errors="replace")
    decoder = json.JSONDecoder(parse_int=json_integer)
    is_compact = False
    for match in _LAUNCH.finditer(text):
        is_compact = True
        yield decoder.raw_decode(text, match.start())[0]
    if not is_compact:  # written by another program, with its keys in another order
        document = decoder.decode(text)
        entries = document.get("traceEvents") if isinstance(document, dict) else document
        yield from (e for e in entries or () if isinstance(e, dict) and e.get("cat") in cat.CALL)


def _facts(event: Mapping[str, object]) -> tuple[object, ...]:
    written = event.get("args")
    args = written if isinstance(written, dict) else {}
    kernel = args.get("kernel")
    sizes = [_three(args.get(what)) for what in ("grid", "block")]
    return (
        int64(event.get("pid")),
        int64(args.get("correlation")),
        characters(str(event.get("name", ""))),
        characters(kernel) if isinstance(kernel, str) and kernel else None,
        *sizes[0],
        *sizes[1],
    )


def _three(value: object) -> tuple[int | None, int | None, int | None]:
    if not isinstance(value, list) or len(value) != len("xyz"):
        return None, None, None
    x, y, z = (int64(each) for each in value)
    return x, y, z
