"""Nsight Systems' own report files, read through the user's own nsys."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_ingest.formats.nsys.sqlite import NSYS_SQLITE
from xsp_ingest.ingester import Ingester, Match
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["NSYS_REPORT", "command_elsewhere", "export", "find", "version_of"]

# The user's own nsys: where it is, which version it is, and how it exports a report.

NSYS = "nsys"
"""The key of `Options.extra` that says where nsys is."""
NSYS_TIMEOUT = "nsys_timeout_s"
"""The key of `Options.extra` that says how long an export may take."""
_ENVIRONMENT = "XSP_NSYS"
_TIMEOUT_S = 3600
_VERSION_TIMEOUT_S = 60
_MAX_MESSAGE_CHARACTERS = 200
_NSYS_VERSION = re.compile(r"version (\d+)\.(\d+)\.(\d+)")


def find(extra: Mapping[str, str]) -> str | None:
    """The nsys that was named with --nsys or $XSP_NSYS, else the one on PATH; XspError where the named one is not."""
    for source, where in (("--nsys", extra.get(NSYS)), (f"${_ENVIRONMENT}", os.environ.get(_ENVIRONMENT))):
        if where:
            program = shutil.which(where)
            if program is None:
                raise XspError(f"{source} names no program", path=where, advice="Give the path of the nsys executable")
            return program
    return shutil.which("nsys")


def command_elsewhere(report: Path) -> str:
    """What to do on a machine that has nsys."""
    return (
        f"Where Nsight Systems is installed, run `nsys export --type sqlite {report.name}` and give the .sqlite file"
        " to xsp, or say where it is with --nsys PATH"
    )


def version_of(nsys: str) -> tuple[int, ...] | None:
    """The program's version; null where it does not say one."""
    try:
        done = _run([nsys, "--version"], _VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _NSYS_VERSION.search(done.stdout)
    return tuple(int(part) for part in match.groups()) if match else None


def export(nsys: str, report: Path, folder: Path, extra: Mapping[str, str]) -> Path:
    """The SQLite export of a report, made in the folder; XspError where nsys cannot make it."""
    output = folder / "report.sqlite"
    options = ["--type=sqlite", "--lazy=true", "--quiet=true", "--force-overwrite=true", f"--output={output}"]
    timeout_s = float(extra.get(NSYS_TIMEOUT, _TIMEOUT_S))
    try:
        # An absolute path never looks like an option.
        done = _run([nsys, "export", *options, str(report.resolve())], timeout_s)
    except subprocess.TimeoutExpired as error:
        raise XspError(
            f"nsys did not export the report within {timeout_s:g} s", path=report, advice=command_elsewhere(report)
        ) from error
    except OSError as error:
        raise XspError(f"nsys cannot be run ({error.strerror})", path=nsys, advice=command_elsewhere(report)) from error
    if done.returncode or not output.is_file():
        raise XspError(
            f"nsys could not export the report ({_last_words(done)})", path=report, advice=command_elsewhere(report)
        )
    return output


def _run(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    # Without a shell: names of files are never read as commands.
    return subprocess.run(  # noqa: S603
        list(command),
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        timeout=timeout_s,
    )


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    message = " ".join(f"{done.stderr}\n{done.stdout}".split())
    return message[-_MAX_MESSAGE_CHARACTERS:] or f"it ended with code {done.returncode} and said nothing"


_REPORT = b"NVIDIA Tegra Profiler Report"
_STREAM = b"NVIDIA Nsight Systems Stream"
_HEAD_BYTES = 64
_VERSION = re.compile(rb"Report (\d+)@(\d+)@(\d+)@")


class NsysReport(Ingester):
    """The ingester of Nsight Systems' report files."""

    name: str = "nsys_report"
    exported_with: str | None = ".sqlite"
    title: str = "Nsight Systems report (.nsys-rep, .qdrep) through your own nsys (2023.4 seen)"

    def sniff(self, probe: Probe) -> Match:
        """Whether the file begins as a report, or as the stream that one is made from."""
        return Match.exact_if(probe.head.startswith(_REPORT) or _is_stream(probe.head))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The report's rows; XspError where there is no nsys, or none that can export the report."""
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if _is_stream(head):
            raise XspError(
                "a stream that Nsight Systems has not made into a report yet",
                path=path,
                advice=f"Run `QdstrmImporter -i {path.name}`, which lies in Nsight Systems' host folder, and then "
                "give the .nsys-rep file to xsp",
            )
        nsys = find(options.extra)
        if nsys is None:
            raise XspError(
                "a Nsight Systems report, which only nsys can open, and none is on PATH",
                path=path,
                advice=command_elsewhere(path),
            )
        _check_age(nsys, head, path)
        return _read_export(nsys, path, options)


def _is_stream(head: bytes) -> bool:
    return _STREAM in head[:_HEAD_BYTES]


def _check_age(nsys: str, head: bytes, path: Path) -> None:
    """A report is read by the version that wrote it and by later ones; XspError where nsys is older."""
    written = _VERSION.search(head)
    ours = version_of(nsys)
    if written is None or ours is None:
        return
    theirs = tuple(int(part) for part in written.groups())
    if theirs > ours:
        raise XspError(
            f"the report is of Nsight Systems {'.'.join(map(str, theirs))}, and nsys here is {'.'.join(map(str, ours))}"
            ", which cannot open it",
            path=path,
            advice=command_elsewhere(path),
        )


def _read_export(nsys: str, path: Path, options: Options) -> RawTrace:
    with tempfile.TemporaryDirectory(prefix="xsp-nsys-") as name:
        database = export(nsys, path, Path(name), options.extra)
        raw = NSYS_SQLITE.read(database, options)
    # What is read is the export; where it came from is the report.
    return replace(raw, facts=replace(raw.facts, source_bytes=path.stat().st_size))


NSYS_REPORT = NsysReport()
