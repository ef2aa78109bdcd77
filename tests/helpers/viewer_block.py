"""Small traces as the trace viewer reads them, packed without the code under test."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any

from xsp_analyze.pages.blocks import IDLE_TONES, TONES
from xsp_analyze.text.units import IDLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BOX_KEYS", "END", "packed", "packed_columns", "two_ranks"]

BOX_KEYS = ("lane", "row", "start", "duration", "name", "tone", "merged", "busy", "span", "layer")
_SUMMED = {"lane", "start", "time", "times", "span", "from_lane", "from_time", "to_lane", "to_time"}


def packed(values: Sequence[int], *, summed: bool) -> str:
    """Zigzag varints of the values or of their differences, deflated, in base64."""
    out = bytearray()
    last = 0
    for value in values:
        number = value - last if summed else value
        last = value
        number = number * 2 if number >= 0 else -number * 2 - 1
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return base64.b64encode(packer.compress(bytes(out)) + packer.flush()).decode()


def packed_columns(rows: Sequence[Mapping[str, int]], keys: Sequence[str]) -> dict[str, Any]:
    """`count` and `columns` of rows that have these keys."""
    columns = {key: packed([row[key] for row in rows], summed=key in _SUMMED) for key in keys}
    return {"count": len(rows), "columns": columns}


_TONES = (*TONES, "model", "layer", "operator", "library", "runtime")
_NAMES = (
    "step 0", "step 1", "Block_0", "cudaLaunchKernel", "void ns::sgemm_128x64(float)", "softmax_fw", "tiny_add",
    "ncclAllReduce",
)  # fmt: skip
_US = 1000
END = 4_000 * _US


def two_ranks(*, merged: bool = False) -> dict[str, Any]:
    """Two steps of 2 ms of two ranks; of rank 0 two launches, three products, a copy of nothing and 40 tiny kernels.

    With `merged`, what begins in the first step is only there as one box of 37 kernels that are 75 % busy.
    """
    boxes = [row for lane in _boxes() for row in lane]
    levels = [{"resolution": 0, "from": 0, "to": END, "boxes": packed_columns(boxes, BOX_KEYS)}]
    if merged:
        late = [row for row in boxes if row["start"] >= 2_000 * _US]
        coarse = [_box(1, 0, 500, 40, None, "matrix-product", merged=37, busy=30), *(r for r in late if r["lane"] == 1)]
        levels = [
            {"resolution": 0, "from": 2_000 * _US, "to": END, "boxes": packed_columns(late, BOX_KEYS)},
            {"resolution": 50 * _US, "from": 0, "to": END, "boxes": packed_columns(coarse, BOX_KEYS)},
        ]
    return {
        "type": "viewer", "title": "hand made", "begin": 0, "end": END, "open": [2_000 * _US, END],
        "names": list(_NAMES), "tones": list(_TONES),
        "causes": [{"tone": IDLE_TONES[key], "text": text} for key, text in IDLE.items()],
        "lanes": [_lane(*lane) for lane in _LANES],
        "steps": [{"number": n, "run": run, "begin": n * 2_000 * _US, "end": (n + 1) * 2_000 * _US}
                  for run in (0, 1) for n in (0, 1)],
        "counters": [{"lane": 3, "unit": "bytes", "times": packed([0, 2_500 * _US, 3_000 * _US], summed=True),
                      "values": [2**30, 2**31, 2**30]}],
        "levels": levels,
        "flows": packed_columns(_FLOWS, ("from_lane", "from_time", "to_lane", "to_time", "span")),
        "gaps": packed_columns(_GAPS, ("lane", "start", "duration", "cause")),
        "left_out": "Elsewhere spans are drawn merged. xsp view shows all of it." if merged else None,
    }  # fmt: skip


_LANES = (
    ("thread 1", "rank 0, host", "host", 3, 0, None), ("stream 7", "rank 0, GPU 0", "device", 1, 0, 0),
    ("stream 20", "rank 0, GPU 0", "device", 1, 0, 0), ("allocated memory", "rank 0, GPU 0", "counter", 1, 0, 0),
    ("thread 9", "rank 1, host", "host", 1, 1, None), ("stream 7", "rank 1, GPU 1", "device", 1, 1, 1),
)  # fmt: skip


def _lane(title: str, group: str, side: str, rows: int, run: int, device: int | None) -> dict[str, Any]:
    key = f"{group}/{title}"
    return {"key": key, "group": group, "title": title, "side": side, "rows": rows, "run": run, "device": device}


def _box(
    lane: int, row: int, start: float, duration: float, name: str | None, tone: str,
    *, span: int = -1, layer: str | None = None, merged: int = 0, busy: float | None = None,
) -> dict[str, int]:  # fmt: skip
    return {
        "lane": lane, "row": row, "start": int(start * _US), "duration": int(duration * _US),
        "name": -1 if name is None else _NAMES.index(name), "tone": _TONES.index(tone), "merged": merged,
        "busy": int((duration if busy is None else busy) * _US), "span": span,
        "layer": -1 if layer is None else _NAMES.index(layer),
    }  # fmt: skip


def _boxes() -> list[list[dict[str, int]]]:
    product, soft = _NAMES[4], _NAMES[5]
    return [
        [_box(0, 0, 0, 2_000, "step 0", "model", span=1), _box(0, 0, 2_000, 2_000, "step 1", "model", span=2)],
        [_box(0, 1, 2_100, 900, "Block_0", "layer", span=10)],
        [_box(0, 2, start, 10, "cudaLaunchKernel", "runtime", span=span, layer="Block_0")
         for start, span in ((2_200, 20), (2_300, 21))],
        [_box(1, 0, 500, 400, product, "matrix-product", span=32),
         _box(1, 0, 2_500, 400, product, "matrix-product", span=30, layer="Block_0"),
         _box(1, 0, 3_000, 100, soft, "softmax", span=31, layer="Block_0"),
         *(_box(1, 0, 3_500 + n / 8, 0.1, "tiny_add", "elementwise", span=100 + n) for n in range(40))],
        [_box(2, 0, 2_600, 200, "ncclAllReduce", "communication", span=33)],
        [_box(4, 0, 2_000, 2_000, "step 1", "model", span=3)],
        [_box(5, 0, 2_500, 300, product, "matrix-product", span=40)],
    ]  # fmt: skip


def _flow(start: int, end: int, span: int) -> dict[str, int]:
    return {"from_lane": 0, "from_time": start * _US, "to_lane": 1, "to_time": end * _US, "span": span}


_FLOWS = (_flow(2_205, 2_500, 30), _flow(2_305, 3_000, 31))
_GAPS = (
    {"lane": 1, "start": 900 * _US, "duration": 1_600 * _US, "cause": 2},
    {"lane": 1, "start": 2_900 * _US, "duration": 100 * _US, "cause": list(IDLE).index("idle_launch_ns")},
)
