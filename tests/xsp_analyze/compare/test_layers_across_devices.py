"""The same model on two vendors' devices: layers are common ground although hardly a kernel is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_analyze.merge.matching import match_layers
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.real
def test_bert_on_h100_and_mi300x_has_the_same_layers_and_hardly_a_kernel_in_common(real_dir: Path) -> None:
    h100, mi300x = (
        convert([real_dir / "kineto" / f"bert_small.{device}.json.gz"], Options()) for device in ("h100", "mi300x")
    )
    matched, mapping = match_layers(h100, mi300x)
    assert matched.alignment.rate == 1.0
    assert matched.alignment.first_count == 67
    assert (mapping["layer_index"] == mapping["new_index"]).all()
    names = [
        set(trace.frame("spans").filter(pl.col("kind") == "kernel")["name"].cast(pl.String)) for trace in (h100, mi300x)
    ]
    # Of 11 kernels each, three of PyTorch's own are built for both; no matrix product is.
    assert (len(names[0]), len(names[1]), len(names[0] & names[1])) == (11, 11, 3)
    assert all("at::native" in name for name in names[0] & names[1])
