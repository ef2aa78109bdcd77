"""Runs described with accuracies and checksums of what came out of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace

__all__ = ["described_run", "recorded_tensor", "run_of"]


def recorded_tensor(kind: str, name: str, values: Sequence[float], digit: str, **changes: object) -> dict[str, Any]:
    """A vector of these values, all of which are recorded; its digest is of one digit."""
    base = {"shape": [1, len(values)], "dtype": "float32", "sha256": digit * 64, "sampled_values": list(values)}
    return {"kind": kind, "name": name, "step": 3, "non_finite": 0, **base, **changes}


def described_run(folder: Path, *, ns: int = 1_000_000, **changes: object) -> Path:
    """Writes a run of the model alone, of three steps of about `ns`; the path of its run.json."""
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        "schema_version": 1,
        "level": "M",
        "model": {"name": "net"},
        "framework": {"name": "pytorch", "version": "2.13.0"},
        "batch_size": 1,
        "device": {"name": "NVIDIA H100"},
        "steps": 3,
        "step_durations_ns": [ns, ns + 1_000, ns + 2_000],
        **changes,
    }
    path = folder / "run.json"
    path.write_text(json.dumps(described))
    return path


def run_of(folder: Path, *, ns: int = 1_000_000, **changes: object) -> Trace:
    """The trace of such a run."""
    return read_run(described_run(folder, ns=ns, **changes), Options())
