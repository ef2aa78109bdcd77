"""The folder of one run: its files appear whole, `run.json` last, so an interrupted run is not taken for done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ERROR",
    "LEVEL",
    "RUN",
    "SCHEMA_VERSION",
    "RunnerError",
    "clear",
    "error_of",
    "is_complete",
    "public_options",
    "put",
    "put_error",
    "put_json",
    "read_json",
    "without_private_folders",
]

SCHEMA_VERSION = 1
"""The version of run.json that runners write."""

RUN = "run.json"
ERROR = "error.json"
LEVEL = "level.json"
"""What a level process tells of a run that a tool around it records: run.json once the tool's files are there."""


class RunnerError(Exception):
    """What kept a run from being made, in one sentence for its user."""


def put(path: Path, content: bytes) -> None:
    """Writes the file beside its place and renames it into it; RunnerError where that cannot be done."""
    unfinished = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_bytes(content)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise RunnerError(f"the run cannot be written to {path.parent}: {error.strerror}") from error


def put_json(path: Path, content: Mapping[str, object]) -> None:
    """Writes the object as `put` does."""
    put(path, (json.dumps(content, indent=2) + "\n").encode())


def put_error(
    folder: Path,
    level: str,
    sentence: str,
    *,
    memory_full: str | None = None,
    batch_size: int | None = None,
    options: Mapping[str, object] | None = None,
    more: Mapping[str, object] | None = None,
) -> None:
    """Puts on record that the run failed; `memory_full` is `certain` or `likely` where that is thought to be why."""
    optional = {
        "memory_full": memory_full,
        "batch_size": batch_size,
        "options": public_options(options) if options else None,
        **(more or {}),
    }
    put_json(
        folder / ERROR,
        {
            "schema_version": SCHEMA_VERSION,
            "level": level,
            "status": "out_of_memory" if memory_full else "failed",
            "error": sentence,
            **{key: value for key, value in optional.items() if value is not None},
        },
    )


def clear(folder: Path) -> None:
    """Takes away what an earlier attempt said of itself, before its files are written over."""
    try:
        for name in (RUN, ERROR, LEVEL):
            (folder / name).unlink(missing_ok=True)
        for unfinished in folder.glob(".*.part"):
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise RunnerError(f"the run cannot be written to {folder}: {error.strerror}") from error


def is_complete(folder: Path, level: str, options: Mapping[str, object]) -> bool:
    """Whether the folder holds a finished run of this level, made with these options, and all its files."""
    facts = read_json(folder / RUN)
    files = facts.get("files")
    return (
        (facts.get("schema_version"), facts.get("runner_level")) == (SCHEMA_VERSION, level)
        and facts.get("options") == public_options(options)
        and isinstance(files, list)
        and all((folder / file["path"]).is_file() for file in files)
    )


def public_options(options: Mapping[str, object]) -> dict[str, object]:
    """The options as they are put on record: without the folders of whoever gave them."""
    return {name: _without_folders(value) for name, value in options.items()}


def _without_folders(value: object) -> object:
    if isinstance(value, list):
        return [_without_folders(each) for each in value]
    if not isinstance(value, str):
        return value
    if Path(value).is_absolute() and not Path(value).is_relative_to(Path.cwd()):
        return f".../{Path(value).name}"
    return without_private_folders(value)


def without_private_folders(text: str) -> str:
    """The text with the working folder as `.` and the home folder as `~`."""
    return text.replace(str(Path.cwd()), ".").replace(str(Path.home()), "~")


def error_of(folder: Path) -> str | None:
    """The sentence that a failed run left."""
    sentence = read_json(folder / ERROR).get("error")
    return sentence if isinstance(sentence, str) else None


def read_json(path: Path) -> dict[str, object]:
    """The object in the file; empty where there is none, whole or at all."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
