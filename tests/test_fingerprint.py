"""The fingerprint of one input: it equals itself, and a changed byte is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__: list[str] = []

_REPO = Path(__file__).resolve().parents[1]


def _fingerprint(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fingerprint", "--quick", "--command", "convert", *options]
    return subprocess.run(command, cwd=_REPO, capture_output=True, text=True, check=False)


def test_a_changed_byte_is_reported(tmp_path: Path) -> None:
    record, case = tmp_path / "record.txt", "torch_profiler/bad/missing_launch"
    assert _fingerprint("--only", case, "--out", str(record)).returncode == 0
    lines = record.read_text().splitlines()
    spans = next(line for line in lines if line.endswith(f"{case}/convert/spans.parquet"))
    other = spans.replace(spans[0], "0" if spans[0] != "0" else "1", 1)
    record.write_text("\n".join(line for line in [*lines, "0  other/convert/spans.parquet"]).replace(spans, other))
    again = _fingerprint("--only", case, "--against", str(record))
    assert again.returncode == 1
    assert again.stdout.splitlines() == [
        f"changed  fixtures/{case}/convert/spans.parquet",
        f"1 of {len(lines)} items differ",
    ]
