"""Named baselines: a TOML file that says which captures a name stands for."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Baseline", "read", "with_baseline"]

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_ADVICE = 'It holds tables such as [baselines.main] with inputs = ["before.json.gz"] (docs/compare.md)'


@dataclass(frozen=True, slots=True)
class Baseline:
    """A name's captures, as paths; relative ones in the file are relative to it."""

    name: str
    inputs: Sequence[str]
    note: str = ""


def read(file: Path) -> dict[str, Baseline]:
    """The baselines of the file, by name; XspError where it is none."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise XspError(
            "there is no such file of baselines", path=file, advice="Make one with --save-baseline"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise XspError(f"cannot be read as TOML ({error})", path=file, advice=_ADVICE) from error
    tables = content.get("baselines", {})
    if not isinstance(tables, dict):
        raise XspError("`baselines` is no table", path=file, advice=_ADVICE)
    return {name: _baseline(file, name, table) for name, table in tables.items()}


def _baseline(file: Path, name: str, table: object) -> Baseline:
    inputs = table.get("inputs") if isinstance(table, dict) else None
    if not isinstance(inputs, list) or not inputs or not all(isinstance(i, str) and i for i in inputs):
        raise XspError(f"the baseline {name!r} names no inputs", path=file, advice=_ADVICE)
    note = table.get("note", "") if isinstance(table, dict) else ""
    return Baseline(name, [str(file.parent / i) for i in inputs], str(note))


def with_baseline(text: str, name: str, inputs: Sequence[str], note: str) -> str:
    """The text of a file of baselines with this one in it, in place of one of that name; the rest stays as it is."""
    if not _NAME.fullmatch(name):
        raise XspError(f"{name!r} cannot name a baseline", advice="Use letters, digits, - and _")
    lines = [f"[baselines.{name}]", f"inputs = [{', '.join(_toml_string(i) for i in inputs)}]"]
    lines += [f"note = {_toml_string(note)}"] if note else []
    entry = "\n".join(lines) + "\n"
    old = re.compile(rf"^\[baselines\.{re.escape(name)}\][^\n]*\n(?:(?!\[)[^\n]*(?:\n|\Z))*", re.MULTILINE)
    match = old.search(text)
    if match is None:
        return f"{text.rstrip()}\n\n{entry}" if text.strip() else entry
    rest = text[match.end() :]
    return text[: match.start()] + entry + (f"\n{rest}" if rest else "")


def _toml_string(text: str) -> str:
    """A basic string of TOML: JSON's escapes are its own, but for the character 127."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
