"""What a finished unit leaves beside its results, by which a later batch knows that it need not do it again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp.batch.locations import from_batch, is_url, join_path, read_bytes, stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp.batch.unit import Settings, Unit

__all__ = ["DONE", "Inputs", "earlier", "record", "same_content"]

DONE = "done.json"
_SCHEMA = 2
_CHUNK = 1 << 20

Inputs = dict[str, dict[str, Any]]
"""What is known of each input's content, by its path or URL: `sha256` and `bytes`, and of a URL its `stamp`."""


def _conditions(unit: Unit, settings: Settings) -> dict[str, Any]:
    """What makes two runs of a unit give the same results, besides the content of its inputs."""
    reading = settings.reading
    device = reading.device.read_text(encoding="utf-8") if reading.device else None
    return {
        "schema_version": _SCHEMA,
        "xsp": settings.version,
        "report": settings.reports and unit.kind == "trace",
        "kind": str(unit.kind),
        "reading": reading.deciding(),
        "device": device,
        "gpu": reading.gpu,
        "work_models": [file.read_text(encoding="utf-8") for file in reading.work_models],
    }


def record(unit: Unit, settings: Settings, inputs: Inputs) -> bytes:
    """The record of a unit that is done."""
    contents = [{"name": from_batch(name, settings.output), **content} for name, content in inputs.items()]
    document = {"asked": _conditions(unit, settings), "inputs": contents, "rank": unit.rank}
    return (json.dumps(document, indent=1) + "\n").encode()


def earlier(unit: Unit, settings: Settings, location: str) -> Inputs | None:
    """What the inputs were when the unit was done the same way before; None where it was not."""
    content = read_bytes(join_path(location, DONE))
    if content is None or settings.redo:
        return None
    try:
        document = json.loads(content)
        same = document["asked"] == _conditions(unit, settings) and document["rank"] == unit.rank
        names = [each["name"] for each in document["inputs"]]
        same = same and names == [from_batch(name, settings.output) for name in unit.inputs]
    except (ValueError, KeyError, TypeError):
        return None  # not a record of ours: it is done again
    return dict(zip(unit.inputs, document["inputs"], strict=True)) if same else None


def same_content(before: Inputs) -> bool:
    """Whether every input is still what it was: by the digest of what lies here, by the stamp of what does not."""
    return all(_is_same(name, content) for name, content in before.items())


def _is_same(name: str, content: dict[str, Any]) -> bool:
    if is_url(name):
        return content.get("stamp") is not None and stamp(name) == content["stamp"]
    path = Path(name)
    return path.exists() and content_of([path])[0] == content.get("sha256")


def content_of(paths: Sequence[Path]) -> tuple[str, int]:
    """The digest of files and of all files in folders, with their places; and how many bytes they are."""
    digest, size = hashlib.sha256(), 0
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if not file.is_file():
                continue
            if path.is_dir():
                digest.update(f"{file.relative_to(path).as_posix()}\n{file.stat().st_size}\n".encode())
            size += file.stat().st_size
            with file.open("rb") as content:
                while chunk := content.read(_CHUNK):
                    digest.update(chunk)
    return digest.hexdigest(), size
