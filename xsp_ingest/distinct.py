"""Inputs that are the same once more: what holds another's content, and what lies beside its own export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.files.same_content import first_alike
from xsp_model import Finding, LedgerKind
from xsp_model.plain_text import readable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Ingester

__all__ = ["Distinct", "distinct", "distinct_names", "finding", "first_names", "without_exported"]

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Distinct:
    """Inputs of which none is another one again, by their positions; and the files left out, each with its like."""

    inputs: Mapping[int, Sequence[Path]]
    copies: Mapping[Path, Path]


def distinct(inputs: Sequence[Sequence[Path]]) -> Distinct:
    """The inputs without those all of whose files another one has, and each without files that it has already.

    Of such inputs that of most files stays, of these the first. What inputs share otherwise stays in each: processes of
    one machine describe it alike.
    """
    paths = list(dict.fromkeys(path for files in inputs for path in files))
    content = {path: paths[first] for path, first in zip(paths, first_alike(paths), strict=True)}
    files_of = [{content[path]: path for path in reversed(files)} for files in inputs]
    kept: dict[int, Sequence[Path]] = {}
    holders: dict[Path, list[int]] = {}
    copies: dict[Path, Path] = {}
    for position in sorted(range(len(inputs)), key=lambda n: (-len(files_of[n]), n)):
        own = files_of[position]
        rarest = min((holders.get(each, []) for each in own), key=len)
        holder = next((each for each in rarest if own.keys() <= files_of[each].keys()), None)
        of = own if holder is None else files_of[holder]
        copies |= {path: of[content[path]] for path in inputs[position] if path != of[content[path]]}
        if holder is None:
            kept[position] = [path for path in inputs[position] if path == own[content[path]]]
            for each in own:
                holders.setdefault(each, []).append(position)
    return Distinct({position: kept[position] for position in sorted(kept)}, copies)


def finding(copies: Mapping[Path, Path]) -> Finding:
    """What the ledger says of files that were not read, each with the one that holds the same."""
    names = (distinct_names(copy, of) for copy, of in sorted(copies.items()))
    pairs = [f"{copy} (as {of})" for copy, of in names]
    kind = LedgerKind.SAME_CONTENT_AGAIN
    return Finding(kind, f"{kind.sentence}: {first_names(pairs)}", len(pairs))


def first_names(names: Sequence[str]) -> str:
    """Some of the names, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def distinct_names(one: Path, other: Path) -> tuple[str, str]:
    """The names of two files, with their folders' where they are the same."""
    if one.name != other.name:
        return readable(one.name), readable(other.name)
    return readable("/".join(one.parts[-2:])), readable("/".join(other.parts[-2:]))


def without_exported(files: Sequence[tuple[Path, Ingester]]) -> tuple[list[tuple[Path, Ingester]], dict[Path, Path]]:
    """The files without those beside which their export lies, and these with the exports, which are read instead."""
    there = {path for path, _ in files}
    exports = {
        path: export
        for path, ingester in files
        if ingester.exported_with and (export := path.with_suffix(ingester.exported_with)) in there
    }
    return [one for one in files if one[0] not in exports], exports
