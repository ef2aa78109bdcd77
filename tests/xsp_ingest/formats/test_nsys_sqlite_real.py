"""The Nsight reader on real exports of five versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from xsp_ingest.files.content import Probe
from xsp_ingest.formats.nsys.sqlite import NSYS_SQLITE
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "cloverleaf.a100.nsys2024_5": (5951, 1312),
    "h100_fsdp_2gpu.nsys2026_2": (27190, 3442),
    "h100_mfu_before_2gpu.nsys2026_2": (32249, 4010),
    "no_cuda_tables.rtx4090.nsys2023_4": (9398, 0),  # calls of the operating system: without device work they are all
    "no_kernels.rtx5060ti.nsys2025_1": (3, 0),
    "saxpy_mpi.a100.nsys2022_2": (137, 5),
}


@pytest.mark.real
@pytest.mark.parametrize("name", FILES)
def test_every_row_is_read_and_nothing_private(real_dir: Path, name: str) -> None:
    path = real_dir / "nsys" / f"{name}.sqlite"
    assert NSYS_SQLITE.sniff(Probe(path))
    raw = NSYS_SQLITE.read(path, Options())
    assert (raw.tables["spans"].height, raw.tables["kernels"].height) == FILES[name]
    assert raw.tables["spans"]["row"].is_unique().all()
    written = "".join(frame.write_csv() for frame in raw.tables.values()) + repr(raw.findings) + repr(raw.facts)
    assert "planted-secret" not in written
    assert raw.facts.epoch_ns is not None
