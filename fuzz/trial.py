"""One trial: a damaged fixture, and whether reading it ends in a sound trace or in an error of one sentence."""

from __future__ import annotations

import shutil
import traceback
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from fuzz.answers import ask_everything
from fuzz.guarded import guarded_memory
from fuzz.mutate import mutate
from fuzz.seeds import seeds
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError, integrity
from xsp_model.limits import override_limits

__all__ = ["Failure", "Outcome", "compiled_readers", "outcome_of", "prepare"]

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_model import Trace

_FORCED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: in short, the same for failures with the same cause, and in full."""

    cause: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended: in a trace, in a refusal, or badly."""

    kind: str  # trace, refused, failed
    failure: Failure | None = None


def prepare(format_name: str, number: int, folder: Path) -> tuple[list[Path], str | None]:
    """Writes the files of the trial into the empty folder: what to convert, and the format that is forced, if any.

    The same format, number and fixtures give the same bytes.
    """
    random = Random(f"{format_name}/{number}")
    seed = random.choice(seeds(format_name))
    chosen = random.choice(seed.files)
    for name in seed.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(seed.folder / name, folder / name)
    (folder / chosen).write_bytes(mutate((folder / chosen).read_bytes(), random))
    forced = format_name if random.random() < _FORCED_SHARE else None
    return sorted(folder.iterdir()), forced


@contextmanager
def compiled_readers(number: int) -> Iterator[None]:
    """In trials of odd numbers, what is compiled reads small files too, which else only large ones are worth.

    Its memory then ends where nothing may be read or written.
    """
    small_is_large = override_limits(
        compiled_compile_min_bytes=0,
        compiled_finish_min_bytes=0,
        compiled_min_bytes=0,
        page_reader_compile_min_bytes=0,
        page_reader_min_bytes=0,
        plane_scan_min_bytes=0,
        sweep_compile_min_rows=0,
        sweep_min_rows=0,
    )
    with ExitStack() as patches:
        if number % 2:
            patches.enter_context(small_is_large)
            patches.enter_context(guarded_memory())
        yield


def outcome_of(paths: list[Path], format_name: str | None, *, answers_seed: int | None = None) -> Outcome:
    """How reading these files ends; with `answers_seed`, where it ends in a trace, how its answers do, by this seed."""
    try:
        trace = convert(paths, Options(), format_name=format_name)
    except XspError as refusal:
        return _of_refusal(str(refusal))
    except Exception as error:  # noqa: BLE001 (any other exception is what we look for)
        return Outcome("failed", Failure(_cause(error), traceback.format_exc()))
    if violations := list(integrity.broken_rules(trace)):
        return Outcome("failed", Failure(f"unsound trace: {violations[0]}", "\n".join(violations)))
    return Outcome("trace") if answers_seed is None else _outcome_of_answers(trace, answers_seed)


def _outcome_of_answers(trace: Trace, number: int) -> Outcome:
    try:
        with TemporaryDirectory(prefix="xsp-fuzz-exports-") as folder:
            ask_everything(trace, Path(folder), number)
    except Exception as error:  # noqa: BLE001 (likewise)
        return Outcome("failed", Failure(_cause(error), traceback.format_exc()))
    return Outcome("trace")


def _of_refusal(message: str) -> Outcome:
    if "\n" in message or "\r" in message:
        return Outcome("failed", Failure("an error of several lines", message))
    if len(message) > 4000:
        return Outcome("failed", Failure("an error without end", message[:4000]))
    return Outcome("refused")


def _cause(error: Exception) -> str:
    """The exception's type and our innermost function on its way."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "/xsp_" in f.filename]
    where = f"{Path(ours[-1].filename).parent.name}/{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
    return f"{type(error).__name__} in {where}"
