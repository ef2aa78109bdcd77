"""What the compiled scanner's Python and machine code agree on: constants, and the scan state, a row of int64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.formats.torch_profiler.events import FRAMEWORK_FRAMES, UNREAD_FLOWS

if TYPE_CHECKING:
    from collections.abc import Sequence

PAD = 64
"""Zero bytes behind every text. No JSON token holds one, so every loop stops there, and no load reaches beyond."""

# How names of FRAMEWORK_FRAMES start as they are written: as numbers of so many bytes, at most eight.
TORCH, BUILT_IN = (int.from_bytes(b'"' + text.encode(), "little") for text in FRAMEWORK_FRAMES)
TORCH_BYTES, BUILT_IN_BYTES = (1 + len(text) for text in FRAMEWORK_FRAMES)
FRAME_NUMBERS = 4  # of a frame: when, how long, process, thread

MAX_DEPTH = 256
NULL = -(1 << 63)

# The texts that come first, so that their numbers are known: those from UNREAD on are categories not kept.
KNOWN_TEXTS = ("X", "python_function", *UNREAD_FLOWS)
COMPLETE, PYTHON, UNREAD = range(3)
PHASE, CATEGORY, NAME, OWN_TEXTS = range(4)  # slots of a row: its texts, then whole numbers, texts, details, spellings

# How a scan ends; a place, which is an address, is never negative.
DONE = 0
INCOMPLETE = -1  # the bytes end before the value does
UNSURE = -2  # no JSON, or JSON that the plain scanner should judge
FULL = -3  # a table has no room for one more event

# The table of known keys.
KEYS_PER_LEVEL = 256
KEY_WORDS = 5  # three words of the key, its length + 1, its meaning: kind * 256 + slot
MEMBERS, LABEL, TEXT, MICROSECONDS, INTEGER, AXES = range(6)  # kinds: what to do with the value
THE_END, NO_VALUE = range(6, 8)  # of segments with no value behind them: the event ends there, or the segment goes on
UNKNOWN = -1  # the meaning of a key that is not in the table

# A segment: its text, and behind it whole numbers, at these offsets in bytes.
MAX_SEGMENTS = 4096
SEGMENT_SIZE = 128
SEGMENT_BYTES, SEGMENT_MEANING, SEGMENT_NEXT, SEGMENT_BESIDE, SEGMENT_PHASE, SEGMENT_CATEGORY = range(64, 64 + 6 * 8, 8)
VALUE_OFFSETS_WORDS = 3  # of a value: where it starts, where it ends, its key's meaning
MAX_VALUE_OFFSETS = 256  # values of an event

# Whether segments are asked is decided by how many events had known ones: an unknown one is read twice.
MAX_SCORE, SCORE_LOST, MIN_SCORE = 1024, 4, -8192

# What may come next.
VALUE_OR_END, VALUE, COMMA_OR_END, ONE_VALUE = range(4)

MIX, MIX_2 = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F  # odd numbers without pattern, to hash with

NAMES = (
    "offset",  # where to go on
    "expected",  # what comes next in the list
    "rows",
    "not_objects",
    "texts",  # distinct texts so far
    "text_bytes",  # their bytes
    "indexed",  # how many of them the table holds
    "end",
    "keys",
    "row",  # scratch: a value a slot (for texts their start), then the ends of texts
    "width",  # slots of a row
    "first_argument",  # slots before it are the event's own, the others of its `args`
    "preferred",  # for the slots of other spellings the slot they stand in for
    "numbers",
    "number_columns",
    "started",  # which of them have a value yet: the others are not written, for untouched memory is free
    "details",  # rows of whole numbers that few events have; the event's row is the first
    "detail_columns",
    "detail_rows",
    "max_details",
    "python_frames",  # complete ones of functions
    "frames",  # of those the ones kept: a text's number, then as many of the row's own whole numbers, a column each
    "frame_rows",
    "max_frames",
    "wants_frames",
    *(f"unread_{flow}" for flow in UNREAD_FLOWS),  # how many of each, one behind the other
    "known_texts",  # how many
    "module_prefix",  # how the text of a module's name starts
    "module_prefix_bytes",
    "text_ids",
    "code_columns",
    "max_rows",
    "store",  # the distinct texts' bytes
    "store_bytes",
    "seen",  # start and length in the store of each
    "hashes",
    "max_texts",
    "table",
    "table_mask",
    "nesting",  # scratch
    "segments",
    "segment_count",
    "value_offsets",  # scratch: the values of the event
    "value_offsets_count",
    "score",  # below 0: segments are not asked for so many events
    "first_spelling",  # slot
)

# Each place as an offset in bytes.
(
    OFFSET,
    EXPECTED,
    ROWS,
    NOT_OBJECTS,
    TEXTS,
    TEXT_BYTES,
    INDEXED,
    END,
    KEYS,
    ROW,
    WIDTH,
    FIRST_ARGUMENT,
    PREFERRED,
    NUMBERS,
    NUMBER_COLUMNS,
    STARTED,
    DETAILS,
    DETAIL_COLUMNS,
    DETAIL_ROWS,
    MAX_DETAILS,
    PYTHON_FRAMES,
    FRAMES,
    FRAME_ROWS,
    MAX_FRAMES,
    WANTS_FRAMES,
    UNREAD_COUNTS,
    _,
    KNOWN_TEXTS_COUNT,
    MODULE_PREFIX,
    MODULE_PREFIX_BYTES,
    TEXT_IDS,
    CODE_COLUMNS,
    MAX_ROWS,
    STORE,
    STORE_BYTES,
    SEEN,
    HASHES,
    MAX_TEXTS,
    TABLE,
    TABLE_MASK,
    NESTING,
    SEGMENTS,
    SEGMENT_COUNT,
    VALUE_OFFSETS,
    VALUE_OFFSETS_COUNT,
    SCORE,
    FIRST_SPELLING,
) = range(0, 8 * len(NAMES), 8)


def first_slot(labels: Sequence[int]) -> int:
    """Where a key of three words and a length is looked for first; the machine code computes the same."""
    mixed = labels[0] ^ (labels[1] * MIX) ^ (labels[2] * MIX_2) ^ labels[3]
    return ((mixed * MIX) % (1 << 64)) >> 56
