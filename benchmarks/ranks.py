"""Makes a job of many ranks to measure `xsp batch` with: `python -m benchmarks.ranks DIR --ranks 1000`.

Each rank is a small trace of the synthetic training step (`fixtures/make/training.py`) that says its own rank; steps
differ from rank to rank as one seed differs from another, of which there are few, so that a job is soon made.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path
from typing import TYPE_CHECKING

from fixtures.make.training import training_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["write_job"]

_SEEDS = 16
_MARK = b'"rank": 0'


def write_job(folder: Path, ranks: int, *, steps: int = 2) -> int:
    """Writes DIR/rank_00000.json.gz and so on; returns the bytes written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    different = list(_contents(steps, min(ranks, _SEEDS), ranks))
    for rank in range(ranks):
        content = different[rank % len(different)].replace(_MARK, f'"rank": {rank}'.encode(), 1)
        packed = gzip.compress(content, 6, mtime=0)
        (folder / f"rank_{rank:05d}.json.gz").write_bytes(packed)
        written += len(packed)
    return written


def _contents(steps: int, seeds: int, ranks: int) -> Iterator[bytes]:
    for seed in range(seeds):
        trace = training_trace(steps=steps, seed=seed)
        trace.head["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": ranks}
        content = trace.to_bytes()
        if _MARK not in content:
            raise ValueError("the trace does not say its rank where it was looked for")
        yield content


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=2)
    arguments = parser.parse_args()
    written = write_job(arguments.folder, arguments.ranks, steps=arguments.steps)
    print(f"{arguments.folder}: {arguments.ranks} ranks, {written / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
