"""What is done with one unit, wherever it is done, and the record by which a later batch need not do it again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import traceback
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp.batch.locations import fetch, from_batch, is_url, join_path, put_folder, read_bytes, stamp
from xsp.batch.unit import Cost, Kind, Status, UnitOutcome
from xsp.cache.key import look
from xsp.memory import ran_out
from xsp.opening import load
from xsp_analyze.faults import attempt, noting_faults
from xsp_model import XspError
from xsp_model.limits import limits, peak_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp.batch.unit import Settings, Unit
    from xsp.cache.key import Seen
    from xsp_model import Trace

__all__ = [
    "BUNDLE",
    "DONE",
    "FACTS",
    "JOBS",
    "REPORT",
    "SAME_RANKS",
    "TRACES",
    "UNIT",
    "Inputs",
    "completion_record",
    "earlier_record",
    "location_of",
    "process",
    "same_content",
]

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


def completion_record(unit: Unit, settings: Settings, inputs: Inputs) -> bytes:
    """The record of a unit that is done."""
    contents = [{"name": from_batch(name, settings.output), **content} for name, content in inputs.items()]
    document = {"asked": _conditions(unit, settings), "inputs": contents, "rank": unit.rank}
    return (json.dumps(document, indent=1) + "\n").encode()


def earlier_record(unit: Unit, settings: Settings, location: str) -> Inputs | None:
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


# What is done with one unit, wherever it is done: fetch, convert, report, write; a failure is a sentence.

TRACES, JOBS, UNIT = "traces", "jobs", "unit-"
BUNDLE, REPORT, FACTS = "trace.xsp", "report.html", "facts.json"
SAME_RANKS = "same_ranks"
"""In what is remembered beside facts, a sentence where several files of the trace say that they are one rank."""
_DISK_FULL = 28  # ENOSPC


def location_of(unit: Unit, output: str) -> str:
    """Where the unit's results go."""
    if unit.job is not None:
        return join_path(output, JOBS, unit.job, "ranks", unit.name)
    return join_path(output, TRACES, unit.name)


def process(unit: Unit, settings: Settings) -> UnitOutcome:
    """Does the unit, or finds that it was done; whatever goes wrong with it is in the outcome, not raised."""
    clock, cpu = time.perf_counter(), time.process_time()
    try:
        outcome = _earlier_outcome(unit, settings) or _convert_and_report(unit, settings)
        if settings.history is not None and unit.kind is Kind.TRACE:
            _add_to_history(unit, settings, settings.history)
    except _UnknownError as error:
        outcome = UnitOutcome(unit, Status.LEFT_OUT, str(error))
    except XspError as error:
        outcome = UnitOutcome(unit, Status.FAILED, str(error))
    except OSError as error:
        advice = "Free some space and run the batch again" if error.errno == _DISK_FULL else "Check its place"
        sentence = f"{unit.inputs[0]}: cannot be read or written ({error.strerror or error}). {advice}"
        outcome = UnitOutcome(unit, Status.FAILED, sentence)
    except Exception as error:  # noqa: BLE001 (one bad file must not stop the rest)
        outcome = _unforeseen(unit, error)
    cost = replace(
        outcome.cost,
        wall_s=time.perf_counter() - clock,
        cpu_s=time.process_time() - cpu,
        peak_bytes=peak_bytes(),
    )
    return replace(outcome, cost=cost)


def _add_to_history(unit: Unit, settings: Settings, store: str) -> None:
    """Adds the run to the store, unless it is there already, as where the batch was done before."""
    from xsp.history.adding import add_bundle  # noqa: PLC0415 (only where asked for)

    location = location_of(unit, settings.output)
    report = join_path(location, REPORT) if settings.reports else None
    add_bundle(store, join_path(location, BUNDLE), report, dict(settings.labels))


def _unforeseen(unit: Unit, error: Exception) -> UnitOutcome:
    if ran_out(error):
        advice = "Use fewer --jobs, or do it where there is more"
        return UnitOutcome(unit, Status.FAILED, f"{unit.inputs[0]}: there is not enough memory for it. {advice}")
    reason = f"{type(error).__name__}: {error}"
    sentence = f"{unit.inputs[0]}: a fault in xsp ({' '.join(reason.split())}). Please report it"
    return UnitOutcome(unit, Status.FAILED, sentence, details=traceback.format_exc())


class _UnknownError(XspError):
    """Nobody knows the format of a file that lay in a folder."""


def _check_known(path: Path) -> None:
    """_UnknownError where no ingester claims the file."""
    from xsp_ingest.files.content import Probe  # noqa: PLC0415 (imports polars)
    from xsp_ingest.files.other_tools import refusal  # noqa: PLC0415
    from xsp_ingest.ingester import claimants_of  # noqa: PLC0415 (imports polars)
    from xsp_ingest.registry import candidates  # noqa: PLC0415

    probe = Probe(path)
    if path.is_file() and not claimants_of(probe, candidates(probe)):
        error = refusal(probe)
        raise _UnknownError(error.what, path=path, advice=error.advice)


def _earlier_outcome(unit: Unit, settings: Settings) -> UnitOutcome | None:
    location = location_of(unit, settings.output)
    before = earlier_record(unit, settings, location)
    if before is None or not same_content(before):
        return None
    facts = read_bytes(join_path(location, FACTS))
    if facts is None:
        return None
    size = sum(int(content.get("bytes", 0)) for content in before.values())
    return UnitOutcome(unit, Status.KEPT, facts=json.loads(facts), cost=Cost(input_bytes=size))


def _convert_and_report(unit: Unit, settings: Settings) -> UnitOutcome:
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix=UNIT, dir=settings.scratch))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        inputs: Inputs = {}
        seen = look([Path(name) for name in unit.inputs if not is_url(name)])
        paths = [_here(name, folder / f"input-{n}", inputs) for n, name in enumerate(unit.inputs)]
        result = folder / "result"
        result.mkdir()
        with _rename_in_errors(dict(zip(paths, unit.inputs, strict=True))), noting_faults() as faults:
            facts = _results(unit, settings, paths, result)
        if faults:
            facts["faults"] = [str(fault) for fault in faults]
        _check_unchanged(seen, inputs)
        (result / FACTS).write_text(_text(facts), encoding="utf-8")
        (result / DONE).write_bytes(completion_record(unit, settings, inputs))
        written = sum(file.stat().st_size for file in result.rglob("*") if file.is_file())
        put_folder(result, location_of(unit, settings.output), DONE)
    read = sum(int(content["bytes"]) for content in inputs.values())
    return UnitOutcome(unit, Status.DONE, facts=facts, cost=Cost(input_bytes=read, output_bytes=written))


def _check_unchanged(seen: Seen | None, inputs: Inputs) -> None:
    """XspError where an input was written to since its digest was taken: results would pass for those of another."""
    if seen is not None and seen.is_settled() and seen.same_as(look(seen.paths)):
        return
    for name, content in inputs.items():
        if not is_url(name) and content_of([Path(name)])[0] != content["sha256"]:
            raise XspError("it changed while it was read", path=name, advice="Run the batch again once it is written")


@contextmanager
def _rename_in_errors(names: Mapping[Path, str]) -> Iterator[None]:
    """Within `with`, an error names the inputs as the user did, not the copies of those that lie elsewhere."""
    try:
        yield
    except XspError as error:
        path_text = str(error.path)
        for path, name in names.items():
            path_text = path_text.replace(str(path), name)
        raise type(error)(
            error.what, path=path_text if error.path is not None else None, advice=error.advice
        ) from error


def _text(facts: dict[str, Any]) -> str:
    from xsp_analyze.render.json_text import plain  # noqa: PLC0415 (imports polars)

    return json.dumps(plain(facts), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _here(name: str, folder: Path, inputs: Inputs) -> Path:
    """The input on this machine, fetched where it lies elsewhere; what its content was goes into `inputs`."""
    if not is_url(name):
        path, facts = Path(name), {}
        if not path.exists():
            raise XspError("there is no such file or folder (any more)", path=name)
    else:
        folder.mkdir()
        facts = {"stamp": stamp(name)}
        path = fetch(name, folder)
    digest, size = content_of([path])
    inputs[name] = {"sha256": digest, "bytes": size, **facts}
    return path


def _results(unit: Unit, settings: Settings, paths: list[Path], result: Path) -> dict[str, Any]:
    """Writes bundle and report into the folder; the unit's facts."""
    from xsp_analyze.text.doubts import double_counting  # noqa: PLC0415 (imports polars)
    from xsp_model import bundle  # noqa: PLC0415 (imports polars)

    if unit.discovered and settings.reading.format is None:
        _check_known(paths[0])
    trace = load([str(path) for path in paths], settings.reading, lambda _: None)
    bundle.write(trace, result / BUNDLE)
    if not _is_small(trace):
        trace = bundle.read(result / BUNDLE, is_own=True)
    facts = _rank(unit, trace, result) if unit.kind is Kind.RANK else _write_report(trace, unit, settings, result)
    sentences = double_counting(trace)
    return {**facts, SAME_RANKS: " ".join(sentences)} if sentences else facts


def _is_small(trace: Trace) -> bool:
    """Whether the trace is cheaper to use as it lies in memory than to read from its bundle column by column."""
    is_held = not any(isinstance(part, Path) for part in trace.parts.values())
    return is_held and trace.row_count <= limits().small_trace_max_spans


def _write_report(trace: Trace, unit: Unit, settings: Settings, result: Path) -> dict[str, Any]:
    """Writes the report, where one is wanted; the facts of what it asked already."""
    from xsp_analyze.cohort.facts import facts_of, facts_seen  # noqa: PLC0415 (imports polars)

    if not settings.reports:
        return facts_of(trace, unit.name).to_json()
    from xsp_analyze.pages.report.page import render_answers  # noqa: PLC0415
    from xsp_analyze.pages.report.step_bar import glance  # noqa: PLC0415
    from xsp_analyze.service import Answers  # noqa: PLC0415

    answers = Answers(trace)
    (result / REPORT).write_text(render_answers(answers), encoding="utf-8")
    shown = attempt("The glance", lambda: glance(answers), lambda _: None)
    return {**facts_seen(answers.per_step, unit.name).to_json(), "glance": shown}


def _rank(unit: Unit, trace: Trace, result: Path) -> dict[str, Any]:
    """Writes the tables by which ranks are compared; what the job's page shows of the rank."""
    from xsp_analyze.ranks.facts import write_tables  # noqa: PLC0415 (imports polars)

    return write_tables(trace, result, unit.rank, os.path.basename(unit.inputs[0]))  # noqa: PTH119 (may be a URL)
