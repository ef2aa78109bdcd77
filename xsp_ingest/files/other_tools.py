"""Names files that no ingester claims: other tools' formats, archives, and what failed downloads leave."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from xsp_ingest.files.content import decode_head
from xsp_ingest.files.json_window import outer_keys
from xsp_ingest.files.sqlite import MAGIC, Database, table_names
from xsp_ingest.files.values import varint
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from xsp_ingest.files.content import Probe

__all__ = ["all_refusals", "refusal"]

_LIST = "`xsp formats` lists what can be read"
_NEEDED = (
    "`xsp formats` lists what can be read; --format forces one. What another tool timed, with a start and a duration,"
    " can be written as Chrome's trace events (`name`, `ph` X, `ts`, `dur`, `pid`, `tid`)"
)
_MAX_SHOWN, _MAX_CHARACTERS = 8, 40
_NO_TEXT = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_UNPACK = "Unpack it and give the files, or their folder, to xsp"
_COPY = "Download or copy it again"
_BOMS = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_SQLITE_HEADER = 100
_LARGEST_PAGE = 1 << 16
_TAR_PLACE = 257
_TRACE_PACKETS = 8
_VARINT, _MESSAGE = 0, 2  # wire types of protobuf
_METRICS_FIELDS = frozenset((2, 3, *range(10, 19)))  # that OpMetricsDb has
_SAMPLE_TYPE, _SAMPLE, _STRING_TABLE = 1, 2, 6  # of pprof's Profile
_PROFILE_FIELDS = frozenset(range(1, 16))
_ERROR = re.compile(r"(?i)\berror\b|exception|abort|segmentation fault|not found")
_MAX_LINE = 300
_NSIGHT_SIGNS = ("StringIds", "ThreadNames", "ProcessStreams", "TARGET_INFO_")


@dataclass(frozen=True, slots=True)
class _Other:
    """A kind of file: how it is known, what to call it and what to do with it."""

    is_one: Callable[[Probe], object]
    what: str
    advice: str = _LIST
    looks: Callable[[Probe], str] | None = None  # what more can be said of this file


def refusal(probe: Probe) -> XspError:
    """What to say of a file that no ingester claims: what it is as far as its beginning tells, and what to do."""
    for other in _OTHERS:
        if other.is_one(probe):
            looks = other.looks(probe) if other.looks else ""
            return XspError(f"{other.what}{looks and f': {looks}'}", path=probe.path, advice=other.advice)
    return XspError(f"no known profiler format: {_beginning(probe)}", path=probe.path, advice=_NEEDED)


def all_refusals() -> Iterator[tuple[str, str]]:
    """What can be said of files that no ingester claims, and what to do with them."""
    yield from ((other.what, other.advice) for other in _OTHERS)


def _starts(*magics: bytes) -> Callable[[Probe], object]:
    return lambda probe: probe.text.startswith(magics)


def _says(pattern: bytes) -> Callable[[Probe], object]:
    """The pattern at the beginning of the text, behind a byte order mark and blanks."""
    compiled = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*+(?:" + pattern + rb")", re.DOTALL | re.IGNORECASE)
    return lambda probe: compiled.match(probe.text)


def _holds(opening: bytes, pattern: bytes) -> Callable[[Probe], object]:
    """Text that opens so and holds the pattern somewhere in what is looked at."""
    opens, compiled = _says(opening), re.compile(pattern)
    return lambda probe: opens(probe) and compiled.search(probe.text)


def _is_blank(probe: Probe) -> bool:
    return not probe.text.removeprefix(_BOMS).strip(_BLANK)


def _is_cut_off_database(probe: Probe) -> bool:
    """By the size of a page and the number of pages in its header, see SQLite's file format 1.3; 1 means 64 KiB."""
    head = probe.head[:_SQLITE_HEADER]
    if not head.startswith(MAGIC):
        return False
    page_bytes, pages = int.from_bytes(head[16:18]), int.from_bytes(head[28:32])
    return pages * (_LARGEST_PAGE if page_bytes == 1 else page_bytes) > probe.path.stat().st_size


def _program_error(probe: Probe) -> str:
    """The last line with an error that the profiled program wrote, as the export keeps its output."""
    try:
        database = Database(probe.path, table_names(probe.path))
        output = database.aggregate(
            ("group_concat(value, char(10))",), "StringIds", "id IN (SELECT contentId FROM ProcessStreams)"
        )[0]
    except XspError:
        return ""
    lines = [line.strip() for line in str(output or "").splitlines() if _ERROR.search(line)]
    return f"its program had ended with: {lines[-1][:_MAX_LINE]}" if lines else ""


def _is_begun_nsight_export(probe: Probe) -> bool:
    """Tables that `nsys export` writes for any capture, and nothing that says what was captured or by which version."""
    if not probe.head.startswith(MAGIC):
        return False
    try:
        tables = table_names(probe.path)
    except XspError:
        return False
    signs = [table for table in tables if table.startswith(_NSIGHT_SIGNS)]
    return "StringIds" in signs and len(signs) > 1


def _has_zeroed_header(probe: Probe) -> bool:
    head = probe.head[:_SQLITE_HEADER]
    return not head.strip(b"\0") and bool(probe.head.strip(b"\0"))


def _is_tar(probe: Probe) -> bool:
    return probe.text[_TAR_PLACE : _TAR_PLACE + 5] == b"ustar"


def _is_utf16(probe: Probe) -> bool:
    text = probe.text
    return text.startswith((b"\xff\xfe", b"\xfe\xff")) or bool(re.match(rb"(?:\0[\s -~]){3}|(?:[\s -~]\0){3}", text))


def _is_pprof(probe: Probe) -> bool:
    """A protobuf message as pprof's profile.proto has it: types of samples (1), samples (2), ..., texts (6).

    The first type of samples holds numbers of texts alone, and the first text is empty; as far as the probe shows.
    """
    fields = list(_outer(probe.text))
    of_types = [content for number, content in fields if number == _SAMPLE_TYPE]
    texts = [content for number, content in fields if number == _STRING_TABLE]
    return (
        bool(of_types)
        and all({(1, _VARINT), (2, _VARINT)} >= _fields(one) for one in of_types)
        and any(number == _SAMPLE for number, _ in fields)
        and (not texts or texts[0] == b"")
        and {number for number, _ in fields} <= _PROFILE_FIELDS
    )


def _outer(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The message's fields in order, of numbers without their content; up to what is cut off or no field."""
    at = 0
    while 0 <= at < len(text):
        tag, at = varint(text, at, len(text))
        if at < 0:
            return
        value, behind = varint(text, at, len(text))
        if behind < 0:
            return
        if tag & 7 == _MESSAGE and behind + value <= len(text):
            yield tag >> 3, text[behind : behind + value]
            at = behind + value
        elif tag & 7 == _VARINT:
            yield tag >> 3, b""
            at = behind
        else:
            if tag & 7 != _MESSAGE:
                yield -1, b""
            return


def _is_op_stats(probe: Probe) -> bool:
    """By its name, or as op_stats.proto of XProf has it: fields 1 and 2 hold operators' metrics, each in a field 10."""
    if re.search(r"\.op_stats(?:_v\d+)?\.pb$", probe.path.name):
        return True
    first = next(_messages(probe.text, (1, 2)), frozenset())
    return (10, _MESSAGE) in first and {number for number, _ in first} <= _METRICS_FIELDS


def _messages(text: bytes, numbers: Collection[int]) -> Iterator[frozenset[tuple[int, int]]]:
    """What the first messages in these fields hold, empty ones passed over; ends where the text has something else."""
    at = 0
    for _ in range(_TRACE_PACKETS):
        if text[at : at + 1] not in {bytes((number << 3 | _MESSAGE,)) for number in numbers}:
            return
        length, at = varint(text, at + 1, len(text))
        if at < 0:
            return
        if length:
            yield frozenset(_fields(text[at : at + length]))
        at += length


def _fields(message: bytes) -> set[tuple[int, int]]:
    """The numbers and wire types of the message's fields, as far as it can be followed."""
    fields: set[tuple[int, int]] = set()
    at = 0
    while 0 <= at < len(message):
        tag, at = varint(message, at, len(message))
        if at < 0:
            break
        value, behind = varint(message, at, len(message))
        moves = {0: behind, 1: at + 8, 2: behind + value, 5: at + 4}
        if tag & 7 not in moves:
            break
        fields.add((tag >> 3, tag & 7))
        at = moves[tag & 7]
    return fields


def _listing(names: Iterable[str]) -> str:
    """The first of these names, each in part where it is long."""
    first = [f"`{name[:_MAX_CHARACTERS]}`" for name in islice(dict.fromkeys(names), _MAX_SHOWN + 1)]
    return ", ".join([*first[:_MAX_SHOWN], *(["..."] if len(first) > _MAX_SHOWN else [])])


def _keys(probe: Probe) -> str:
    text = probe.text.removeprefix(_BOMS).lstrip(_BLANK)
    keys = _listing(key.decode(errors="replace") for key in outer_keys(text.lstrip(b"[" + _BLANK)))
    kind = "a list" if text[:1] == b"[" else "an object"
    return f"{kind} with the keys {keys}" if keys else f"{kind} without keys"


def _columns(probe: Probe) -> str:
    first = decode_head(probe.text).partition("\n")[0]
    separator = max(",;\t", key=first.count)
    return f"its columns are {_listing(cell.strip().strip(chr(34)) for cell in first.split(separator))}"


def _tables(probe: Probe) -> str:
    try:
        return f"its tables are {_listing(sorted(table_names(probe.path)))}"
    except XspError:
        return "its tables cannot be read"


def _beginning(probe: Probe) -> str:
    head = probe.text[:_MAX_CHARACTERS]
    if _NO_TEXT.search(probe.text):
        return f"binary, it begins with the bytes {head[:8].hex(' ')}"
    return f"text that begins with `{decode_head(head.lstrip(_BLANK)).partition(chr(10))[0]}`"


def _is_table(probe: Probe) -> bool:
    """Lines of text with the same few separators in each."""
    lines = probe.text.split(b"\n")[:3]
    if len(lines) < 2 or b"\0" in probe.text:  # noqa: PLR2004 (a header and a row)
        return False
    return any(lines[0].count(mark) == lines[1].count(mark) > 0 for mark in (b",", b";", b"\t"))


_OTHERS = (
    _Other(
        lambda probe: probe.is_gzip and not probe.text,
        "a gzip file with nothing in it",
        "Write or copy it again",
    ),
    _Other(_is_blank, "the file holds nothing but blank space", "Capture or copy it again"),
    _Other(
        _says(rb"version https://git-lfs\.github\.com/spec/"),
        "a Git LFS pointer, which stands for the file but is not the file",
        "Fetch the file itself with `git lfs pull`",
    ),
    _Other(
        _says(rb"<!doctype html|<html|<head|(?:<\?xml[^>]*>\s*)?<(?:!doctype html|html)"),
        "a web page that was saved in place of the file, such as an error or a login page",
        "Download the file itself, the raw one where a site offers it",
    ),
    _Other(_says(rb"(?:<\?xml[^>]*>\s*)?<Error>"), "the error message of a file store in place of the file", _COPY),
    _Other(_says(rb"<\?xml|<[a-z]"), "an XML document of no known profiler format"),
    _Other(
        _has_zeroed_header,
        "the file's header is zeroed, as an interrupted `nsys export` leaves it",
        "Export the .nsys-rep file again with `nsys export --type sqlite`",
        _program_error,
    ),
    _Other(
        lambda probe: not probe.head.strip(b"\0"),
        "the file holds zeros only, as an interrupted export or copy leaves it",
        "Export or copy it again",
    ),
    _Other(
        lambda probe: probe.path.suffix == ".qdstrm",
        "a raw capture of Nsight Systems, not yet made into a report",
        "Run `QdstrmImporter -i FILE.qdstrm`, which comes with Nsight Systems, and give the .nsys-rep file to xsp",
    ),
    _Other(
        _is_op_stats,
        "statistics of operators that XProf (TensorBoard's profiler) computed and kept, which hold no time line",
        "Give the .xplane.pb file beside it, of which they were computed",
    ),
    _Other(
        _is_pprof,
        "a pprof profile: stacks with how often or how much, not when they ran, of which no time line can be made",
        "Look at it with `go tool pprof`; of the same run give xsp a trace",
    ),
    _Other(
        _holds(rb"\{", rb"speedscope\.app/file-format-schema"),
        "a speedscope profile: sampled stacks, in which no kernel or launch can be told apart",
        "Give the trace that it was made from",
    ),
    _Other(
        _holds(rb"\{", rb'"(?:preprocessedProfileVersion|geckoProfile\w*|importedFrom)"\s*:'),
        "a Firefox Profiler file: sampled stacks, in which no kernel or launch can be told apart",
        "Give the trace that it was made from",
    ),
    _Other(
        _says(rb'\[\s*\{\s*"traceId"\s*:'),
        "Zipkin spans, which xsp does not read",
        "Export them as OTLP or Jaeger JSON",
    ),
    _Other(
        _holds(rb"[{\[]", rb'"(?:ph|traceEvents|displayTimeUnit)"\s*:'),
        "Chrome trace JSON of a tool that xsp does not know",
        "Where torch.profiler wrote it, force the format with --format torch_profiler",
    ),
    _Other(
        _holds(rb"PK\x03\x04", rb"/data\.pkl|\.data/pkl"),
        "a PyTorch checkpoint or model (a zip with pickles), which holds no trace and is never opened",
        "Profile a run of the model with torch.profiler and give the trace it exports",
    ),
    _Other(_starts(b"PK\x03\x04", b"PK\x05\x06"), "a zip archive", _UNPACK),
    _Other(_is_tar, "a tar archive", _UNPACK),
    _Other(_starts(b"7z\xbc\xaf\x27\x1c"), "a 7z archive", _UNPACK),
    _Other(_starts(b"Rar!\x1a\x07"), "a RAR archive", _UNPACK),
    _Other(_starts(b"\x28\xb5\x2f\xfd"), "a file compressed with zstd", "Decompress it with `zstd -d FILE`"),
    _Other(_starts(b"\xfd7zXZ\0"), "a file compressed with xz", "Decompress it with `xz -dk FILE`"),
    _Other(_starts(b"BZh"), "a file compressed with bzip2", "Decompress it with `bzip2 -dk FILE`"),
    _Other(_starts(b"\x04\x22\x4d\x18"), "a file compressed with lz4", "Decompress it with `lz4 -d FILE`"),
    _Other(
        lambda probe: probe.is_gzip and probe.text.startswith(b"\x1f\x8b"),
        "a gzip file within a gzip file",
        "Decompress it once with `gzip -dk FILE`",
    ),
    _Other(
        lambda probe: re.match(rb"\x80[\x02-\x05]", probe.text),
        "a Python pickle, which xsp never opens: opening one runs whatever code it holds",
        "Write the data as JSON in the program that made it",
    ),
    _Other(
        lambda probe: b"brain.Event:" in probe.text[:64],
        "a TensorBoard event file, which holds summaries but no trace",
        "Give the folder plugins/profile beside it, or the .xplane.pb files in there",
    ),
    _Other(_starts(b"\x7fELF"), "a program or shared library (ELF), not a trace"),
    _Other(_starts(b"MZ"), "a Windows program or library, not a trace"),
    _Other(_starts(b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), "a picture, not a trace", "Give the file it was drawn from"),
    _Other(_starts(b"%PDF"), "a PDF document, not a trace", "Give the profiler's own file"),
    _Other(_starts(b"PERFILE2"), "a Linux perf recording, which knows nothing of GPUs"),
    _Other(
        _starts(b"PAR1"),
        "a Parquet file that holds no known profiler's records",
        "Where it is part of a folder (an nsys parquetdir, an .xsp bundle), give the folder",
    ),
    _Other(
        _is_cut_off_database,
        "a SQLite database that is cut off: its own header says that it was longer",
        "Export or copy it again",
    ),
    _Other(
        lambda probe: probe.text.startswith(MAGIC) and not probe.head.startswith(MAGIC),
        "a SQLite database compressed with gzip, which can be read only as it was",
        "Decompress it with `gunzip -k FILE`",
    ),
    _Other(
        lambda probe: all(name in probe.head for name in (MAGIC, b"rocpd_api", b"rocpd_op")),
        "a database of rocmProfileData (RPD) without its table of names or that of which call issued what",
        "Record it again, with `runTracer.sh`, or with `rocprofv3 --output-format rocpd`",
    ),
    _Other(
        _is_begun_nsight_export,
        "an export of Nsight Systems that was broken off, or of a capture in which nothing was recorded: it names"
        " strings and its target, but holds no activity and does not say what was captured",
        "Export the .nsys-rep file again with `nsys export --type sqlite`; else record with `--trace=cuda,nvtx`",
        _program_error,
    ),
    _Other(
        _starts(MAGIC),
        "a SQLite database that no known profiler wrote",
        "nsys_sqlite, nvprof and rocprofv3 are what can be read; --format forces one of them",
        _tables,
    ),
    _Other(_is_utf16, "text in UTF-16 of no known profiler format", "Save it as UTF-8, as the profiler wrote it"),
    _Other(_says(rb"[{\[]"), "JSON, but of no known profiler format", _NEEDED, _keys),
    _Other(
        _holds(rb"", rb"Self CPU(?: %)?\s{2,}.*CPU total"),
        "a table that torch.profiler printed: sums over operators, of which no time line can be made",
        'Write the trace itself in the program that profiled, with `prof.export_chrome_trace("trace.json.gz")`',
    ),
    _Other(
        _holds(rb"", rb"(?m)^=+ CPU profiling result"),
        "samples of the CPU's stacks that nvprof printed, which hold no device work",
        "Profile with `nvprof -o FILE.nvvp`, or with `--print-gpu-trace --csv --log-file FILE`, and give that file",
    ),
    _Other(
        _holds(rb"", rb"(?m)^==PROF== "),
        "what a program and Nsight Compute printed, without the results, which went to a report",
        "Give the .ncu-rep file that the last lines name, or what `ncu --import FILE --csv --page raw` prints of it",
    ),
    _Other(
        _holds(rb"", rb"(?m)^==\d+== NVPROF is profiling process"),
        "what a program and nvprof printed, without a table of results",
        "Profile with `nvprof -o FILE.nvvp`, or with `--print-gpu-trace --csv --log-file FILE`, and give that file",
    ),
    _Other(
        _holds(rb"", rb"\AStep Id,.*Op Name,.*Task Duration\(us\)|\A[^\n]*Op Name,[^\n]*Task Start Time"),
        "Ascend's table of operators (msprof op_summary), which says nothing of the host",
        "Give the trace_view.json of the same run, which torch_npu's profiler writes beside it",
    ),
    _Other(_is_table, "a table (CSV) of no known profiler format", _NEEDED, _columns),
)
"""In order: the first that fits is said."""
