"""Records the digests of what commands say and write, item by item."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.fingerprint.command import xsp
from tests.fingerprint.normal import parts, settled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Recorder"]

_GZIPPED_BYTES = 1 << 18  # what is kept of large traces would else be gigabytes


@dataclass
class Recorder:
    """The items of a unit so far, and the steps that ran: an item of a step that did not run is not missed."""

    unit: str
    roots: Mapping[str, str]
    keep: Path | None
    command: str = ""
    items: dict[str, str] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def run(self, step: str, *arguments: str, output: Path | None = None) -> bool:
        """Runs `xsp ARGUMENTS`, records what it says and the files it leaves at `output`; whether it answered.

        Where one command is to be recorded alone, others do not run, but for those that make the bundle it needs.
        """
        recorded = self.command in ("", arguments[0])
        if not recorded and arguments[0] not in _MAKES_BUNDLE:
            return False
        outcome = xsp(arguments)
        if not recorded:
            return outcome.code == "0"
        text = f"exit {outcome.code}\n--- stdout\n{outcome.stdout}\n--- stderr\n{outcome.stderr}"
        self.steps.append(f"{self.unit}/{step}/")
        self._add(f"{step}/outcome.txt", settled(text, self.roots).encode())
        if output is not None and output.exists():
            self._files(step, output)
        return outcome.code == "0"

    def _files(self, step: str, output: Path) -> None:
        for file in [output] if output.is_file() else sorted(output.rglob("*")):
            if not file.is_file() or file.name in _VARYING:
                continue
            folder = "" if output.is_file() else f"{file.parent.relative_to(output)}/".removeprefix("./")
            for name, data in parts(file, self.roots).items():
                self._add(f"{step}/{folder}{name}", data)

    def _add(self, item: str, data: bytes) -> None:
        item = f"{self.unit}/{item}"
        self.items[item] = hashlib.sha256(data).hexdigest()
        if self.keep is not None:
            file = self.keep / item
            file.parent.mkdir(parents=True, exist_ok=True)
            if len(data) > _GZIPPED_BYTES:
                file = file.with_name(f"{file.name}.gz")
                data = gzip.compress(data, 1, mtime=0)
            file.write_bytes(data)


_MAKES_BUNDLE = frozenset({"convert", "merge", "batch"})
_VARYING = frozenset({"costs.json"})  # a batch's seconds and bytes of memory
