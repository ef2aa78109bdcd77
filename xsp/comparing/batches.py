"""Two results of `xsp batch`: their models paired by name, each pair compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Pairing", "is_batch", "pairing"]

_SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class Pairing:
    """Names of models with their bundle before and after, in order, and names that only one side has."""

    pairs: Sequence[tuple[str, str, str]]
    only_before: Sequence[str]
    only_after: Sequence[str]


def is_batch(text: str) -> bool:
    """Whether the input is a folder that `xsp batch` wrote."""
    return (Path(text) / _SUMMARY).is_file()


def pairing(before: str, after: str) -> Pairing:
    """The pairs of two such folders; XspError where there are none."""
    from xsp_model import XspError  # noqa: PLC0415 (imports the whole model)

    one, two = _bundles(Path(before)), _bundles(Path(after))
    pairs = [(name, path, two[name]) for name, path in one.items() if name in two]
    if not pairs:
        raise XspError(
            f"no model of {before} is in {after} too", advice="Models are paired by their names in the batch"
        )
    return Pairing(pairs, [name for name in one if name not in two], [name for name in two if name not in one])


def _bundles(folder: Path) -> dict[str, str]:
    from xsp_model import XspError  # noqa: PLC0415

    file = folder / _SUMMARY
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        rows = [row for row in content["traces"] if row["bundle"]]
        return {str(row["name"]): str(folder / row["bundle"]) for row in rows}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise XspError("is no summary of xsp batch", path=file, advice="Run xsp batch again") from error
