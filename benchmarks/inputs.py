"""The inputs, made on first use into the cache folder and kept there; nothing of them is real data."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.environments import Unavailable
from benchmarks.experiment import REPO, XSP
from benchmarks.generate import grow
from benchmarks.generate_nsys import grow_nsys
from benchmarks.nsight import write_tables

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Inputs", "Kineto"]

_MB = 1_000_000
_MANY_LANES_MB = 50  # a trace of this size holds copies beside each other
_STEP_MB = 1  # a step takes at least about this much
_STEPS = 10
_SPARE_BYTES = 5 << 30  # disk that is left free


@dataclass(frozen=True, slots=True)
class Kineto:
    """A PyTorch trace and how many events it holds."""

    path: Path
    events: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """Makes inputs in `folder`."""

    folder: Path

    def kineto(self, size_mb: int) -> Kineto:
        """A trace of about the size: from 50 MB on four copies beside each other; each replays a graph."""
        path = self.folder / f"kineto-{size_mb}mb.json"
        facts = path.with_suffix(".events")
        if not facts.exists():
            self._spare(size_mb * _MB)
            lanes, steps = (4 if size_mb >= _MANY_LANES_MB else 1), min(_STEPS, max(1, size_mb // _STEP_MB))
            events = grow(path, size_mb * _MB, lanes=lanes, replays=1, steps=steps)
            facts.write_text(json.dumps(events), encoding="utf-8")
        return Kineto(path, json.loads(facts.read_text(encoding="utf-8")))

    def kineto_gzip(self, size_mb: int) -> Path:
        """The same trace, packed."""
        source = self.kineto(size_mb).path
        target = source.with_suffix(".json.gz")
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            with source.open("rb") as plain, gzip.open(unfinished, "wb", compresslevel=6) as packed:
                shutil.copyfileobj(plain, packed, 1 << 22)
            unfinished.rename(target)
        return target

    def traces(self, count: int) -> Path:
        """A folder of so many small traces, each of another size."""
        folder = self.folder / f"traces-of-{count}"
        if not folder.exists():
            unfinished = self.folder / "traces-unfinished"
            unfinished.mkdir(exist_ok=True)
            for number in range(count):
                path = unfinished / f"trace_{number:03d}.json"
                grow(path, _MB * (2 + number % 4), steps=2)
                # Those of a size would be copies of each other, which a batch does once.
                path.write_bytes(path.read_bytes() + b" " * (number // 4))
            unfinished.rename(folder)
        return folder

    def nsys(self, kernels: int) -> tuple[Path, int]:
        """An Nsight SQLite file of so many kernels, with their calls and ranges; and its rows of all three."""
        path = self.folder / f"nsys-{kernels}.sqlite"
        facts = path.with_suffix(".rows")
        if not facts.exists():
            self._spare(kernels * 300)
            facts.write_text(json.dumps(grow_nsys(path, kernels)), encoding="utf-8")
        return path, json.loads(facts.read_text(encoding="utf-8"))

    def nsys_tables(self, kernels: int) -> Path:
        """The tables of that file as a folder of Parquet files."""
        folder = self.folder / f"nsys-{kernels}_pqtdir"
        if not folder.exists():
            self._spare(kernels * 300)
            unfinished = folder.with_suffix(".unfinished")
            write_tables(self.nsys(kernels)[0], unfinished)
            unfinished.rename(folder)
        return folder

    def bundle(self, source: Path) -> Path:
        """The source converted by the code as it is now."""
        target = self.folder / f"{source.name}.xsp"
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run([*XSP, "convert", str(source), "-o", str(target)], check=True, cwd=REPO, capture_output=True)
        return target

    def _spare(self, size: int) -> None:
        if shutil.disk_usage(self.folder).free < size + _SPARE_BYTES:
            raise Unavailable(f"there is too little disk for {size / 1e9:.0f} GB")
