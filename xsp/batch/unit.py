"""What the parts of a batch hand one another: a unit of work, how it is to be done, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from xsp.reading import Reading

__all__ = ["Cost", "Kind", "Settings", "Status", "Unit", "UnitOutcome", "own_version"]


class Kind(StrEnum):
    """What a unit is."""

    TRACE = "trace"  # a trace, a profile (run set) or a bundle
    RANK = "rank"  # one rank of a job


class Status(StrEnum):
    """What came of a unit."""

    DONE = "done"
    KEPT = "kept"  # an earlier batch had done it, and neither input nor xsp has changed
    FAILED = "failed"
    LEFT_OUT = "left out"  # a file of no known format that lay in a folder


@dataclass(frozen=True, slots=True)
class Unit:
    """One trace to convert and report: `name` is its folder within the output, `inputs` are what `xsp report` takes.

    Inputs are absolute paths or URLs. `discovered`: they lay in a folder, not named by the user.
    """

    name: str
    inputs: tuple[str, ...]
    kind: Kind = Kind.TRACE
    discovered: bool = False
    job: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """How every unit is done. `output` is an absolute path or a URL; `scratch` is a folder within a local one.

    `history` is the store of runs that each trace is added to, with these labels.
    """

    output: str
    reading: Reading = field(default_factory=Reading)
    reports: bool = True
    redo: bool = False
    scratch: str | None = None
    version: str = ""
    history: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """What a unit took: seconds of wall clock and of processors, bytes read and written, the worker's peak memory."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    input_bytes: int = 0
    output_bytes: int = 0
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """What came of a unit; `reason` says in a sentence why it failed or was left out, `details` is a bug's traceback.

    `facts` is what the index shows of it.
    """

    unit: Unit
    status: Status
    reason: str = ""
    facts: dict[str, Any] | None = None
    cost: Cost = field(default_factory=Cost)
    details: str = ""


# Which xsp this is: results of one version are not taken for those of another.


def own_version() -> str:
    """Version of the package and of the schema that it writes."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    from xsp_model.schema import SCHEMA_VERSION  # noqa: PLC0415 (--help must not wait for pyarrow)

    try:
        return f"xsp {version('xsp')}, schema {SCHEMA_VERSION}"
    except PackageNotFoundError:
        return f"xsp from a checkout, schema {SCHEMA_VERSION}"
