"""From what the user named to a trace: files, folders, patterns or one bundle."""

from __future__ import annotations

import glob
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.cache.cache import load_or_convert, read_bundle
from xsp.reading import Reading, defaults, options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from xsp.cache.cache import Cache
    from xsp_ingest.convert import LeveledRuns
    from xsp_ingest.ingester import Options
    from xsp_model import Trace

__all__ = ["captures_beside", "expand", "load", "options_of", "read_runs", "with_what_is_given"]


def expand(inputs: Sequence[str]) -> list[Path]:
    """The paths that the inputs name, in order and once each; XspError where one names nothing."""
    from xsp_model import XspError  # noqa: PLC0415 (imports the whole model)

    paths: dict[Path, None] = {}
    for text in inputs:
        path = Path(text)
        if not text:
            raise XspError("an input is named by an empty text", advice="Name a file, or . for the current folder")
        if _exists(path):
            paths[path] = None
            continue
        matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 (Path.glob takes no absolute patterns)
        if not matches:
            what = "nothing matches this pattern" if glob.has_magic(text) else "there is no such file or folder"
            raise XspError(what, path=text)
        paths |= dict.fromkeys(Path(m) for m in matches)
    return list(paths)


def _exists(path: Path) -> bool:
    from xsp_model import XspError  # noqa: PLC0415 (imports the whole model)

    try:
        return path.exists()
    except OSError as error:  # a name that is too long, or a folder that is shut
        raise XspError(f"cannot be opened ({error.strerror})", path=path) from error


def load(
    inputs: Sequence[str],
    reading: Reading,
    progress: Callable[[str], None],
    *,
    cache: Cache | None = None,
    only: Mapping[str, Sequence[str]] | None = None,
) -> Trace:
    """The one trace of all inputs.

    `cache`: where converted traces are kept from one time to the next; None: they are not.
    `only`: the kinds of rows, with their columns, that answers will be made from (see `Analysis.reads`); None: all that
    a trace holds. A reader may give more.
    """
    from xsp_model import XspError, bundle  # noqa: PLC0415 (--help must not wait for polars)

    paths = expand(inputs)
    if not any(bundle.is_bundle(p) for p in paths):
        trace = _excerpt(paths, reading, only) if only is not None else None
        if trace is None:
            trace = load_or_convert(
                [*paths, *reading.graph_captures], reading, cache, progress, lambda: _convert(paths, reading, progress)
            )
    elif len(paths) == 1:
        trace = _read_bundle(paths[0], reading, cache)
    else:
        raise XspError(
            "a bundle is a whole trace and cannot be joined with other inputs",
            path=next(p for p in paths if bundle.is_bundle(p)),
            advice="Give one bundle, or convert the source files together",
        )
    return with_what_is_given(trace, reading)


def with_what_is_given(trace: Trace, reading: Reading) -> Trace:
    """The trace's chosen system, with what the user gives: names and peak rates of devices, and work models."""
    if reading.system is not None:
        from xsp_analyze.export.part import of_system  # noqa: PLC0415 (only where asked for)

        trace = of_system(trace, reading.system)
    if reading.device is not None or reading.gpu is not None:
        from xsp_model.devices import read_device_file, with_devices  # noqa: PLC0415 (--help must not wait for polars)

        overrides = () if reading.device is None else read_device_file(reading.device)
        trace = with_devices(trace, overrides, gpu=reading.gpu)
    if reading.work_models:
        from xsp_analyze.frames.operators.users_work import with_work_models  # noqa: PLC0415 (only where there are any)

        trace = with_work_models(trace, reading.work_models)
    return trace


def _excerpt(paths: Sequence[Path], reading: Reading, only: Mapping[str, Sequence[str]]) -> Trace | None:
    """What answers will be made from, read of the file and never kept; None where it takes the whole trace."""
    if replace(reading, format=None) != Reading():
        return None
    from xsp_ingest.convert import excerpt  # noqa: PLC0415 (imports a reader)

    return excerpt(paths, only, format=reading.format)


def _convert(paths: Sequence[Path], reading: Reading, progress: Callable[[str], None]) -> Trace:
    from xsp_model import Trace  # noqa: PLC0415 (--help must not wait for polars)

    runs = read_runs(paths, reading, progress)
    if isinstance(runs, Trace):
        return runs
    from xsp.run_sets import merged_sets  # noqa: PLC0415 (only for runs at several levels)

    return merged_sets(runs)


def read_runs(
    paths: Sequence[Path], reading: Reading, progress: Callable[[str], None]
) -> Trace | Sequence[LeveledRuns]:
    """The one trace of these inputs; or runs of the same work at several levels, those of each rank by themselves.

    The latter of a run set, of a folder with one for each rank, and of a file that holds several levels.
    """
    from xsp_ingest.convert import LeveledRuns, convert_levels  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_ingest.run_set import is_run_set, rank_sets, read_sets  # noqa: PLC0415

    options = options_of(reading)
    if len(paths) == 1 and (is_run_set(paths[0]) or rank_sets(paths[0])):
        _refuse_format(paths[0], reading)
        return read_sets(paths[0], options, progress=progress)
    runs = convert_levels(paths, options, format_name=reading.format, progress=progress)
    return [runs] if isinstance(runs, LeveledRuns) else runs


def _refuse_format(path: Path, reading: Reading) -> None:
    from xsp_model import XspError  # noqa: PLC0415 (--help must not wait for polars)

    if reading.format is not None:
        raise XspError(
            "--format is not for run sets: each run.json names the format of its files",
            path=path,
            advice="Leave it out, or give the files themselves",
        )


def options_of(reading: Reading) -> Options:
    """What the ingesters take of how the user wants inputs read; what only some of them take goes by its name."""
    from xsp_ingest.ingester import Options  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_ingest.staging.selection import Selection, range_of  # noqa: PLC0415

    window = range_of(reading.time_range) if reading.time_range is not None else (None, None)
    shared = {each.name: getattr(reading, each.name) for each in fields(Options) if each.name in options()}
    specific = {name: getattr(reading, name) for name, option in options().items() if option.reader_specific}
    return Options(
        **shared,
        extra={name: "" if value is True else str(value) for name, value in specific.items() if value},
        selection=Selection(*window, reading.process_ids, reading.device_ids),
    )


def _read_bundle(path: Path, reading: Reading, cache: Cache | None) -> Trace:
    usual = defaults()
    chosen = [option for name, option in options().items() if getattr(reading, name) != usual[name]]
    unusable = [option.flag for option in chosen if option.decides and not option.of_bundles]
    if unusable:
        from xsp_model import XspError  # noqa: PLC0415 (--help must not wait for polars)

        flags = " and ".join(filter(None, [", ".join(unusable[:-1]), unusable[-1]]))
        raise XspError(
            f"{flags} {'concern' if unusable[1:] else 'concerns'} source files; this bundle is already converted",
            path=path,
            advice=f"Convert the source files again with {'them' if unusable[1:] else 'it'}",
        )
    trace = read_bundle(path, cache)
    if reading.layer_source == "auto":
        return trace
    from xsp_ingest.convert import relayer  # noqa: PLC0415 (only where layers are chosen anew)

    return relayer(trace, reading.layer_source)


# What lies beside the files that the user named, and may belong to them.

_CAPTURE = "capture"
_BUNDLE = ".xsp"
_TRACE_ENDINGS = (".json", ".json.gz", ".json.zst")


def captures_beside(paths: Iterable[Path], taken: Iterable[Path] = ()) -> list[Path]:
    """Files and folders whose name speaks of a capture, next to the files named or in the folders named.

    vLLM writes a folder `capture_traces`, SGLang `graph_capture_profile` or `capture_traces`. What was named itself, or
    `taken` as a capture already, is none; nor is anything beside a bundle, which is converted.
    """
    inputs = [path.resolve() for path in paths if path.suffix != _BUNDLE]
    beside = {
        one
        for folder in {path if path.is_dir() else path.parent for path in inputs}
        for one in _entries_by_name(folder)
    }
    return sorted(beside - set(inputs) - {path.resolve() for path in taken})


def _entries_by_name(folder: Path) -> Iterator[Path]:
    with suppress(OSError):  # a folder that may not be listed holds nothing for us
        for one in folder.iterdir():
            if _CAPTURE in one.name.lower() and (one.is_dir() or one.name.endswith(_TRACE_ENDINGS)):
                yield one
