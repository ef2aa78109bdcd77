"""What the name of a serving step says, read by the forms of forms.toml."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Form", "Mode", "ServingPhase", "StepAnnotation", "forms", "is_serving_step", "parse_step_annotation"]


class ServingPhase(StrEnum):
    """What a step of a serving engine computes; `Phase` is another thing, forward or backward."""

    PREFILL = "prefill"  # tokens of prompts
    DECODE = "decode"  # tokens that requests past their prompt go on from
    MIXED = "mixed"  # both in one batch
    DIFFUSION = "diffusion"  # one request for an image, all of its denoising steps


@dataclass(frozen=True, slots=True)
class StepAnnotation:
    """A step's name, read. None is what the name does not say; 0 is said.

    `tokens` are those that the step computes (queries), `kv_tokens` those that its attention reads (keys), both summed
    over requests; so are `tokens_squared`, each request's tokens times themselves, and `tokens_by_kv_tokens`, times its
    kv_tokens. `padded_tokens` or `padded_requests` is the size that the batch was padded to, or captured at.
    `batch_key` is the size by which the engine picks a captured graph, in its own unit (tokens or requests): padded
    where the name says so, else as scheduled, and then the graph is the smallest one that is not smaller.
    """

    tool: str
    form: str
    is_capture: bool = False
    serving_phase: ServingPhase | None = None
    mode: str | None = None
    iteration: int | None = None
    requests: int | None = None
    prefill_requests: int | None = None
    decode_requests: int | None = None
    tokens: int | None = None
    prefill_tokens: int | None = None
    decode_tokens: int | None = None
    kv_tokens: int | None = None
    prefill_kv_tokens: int | None = None
    decode_kv_tokens: int | None = None
    tokens_squared: int | None = None
    prefill_tokens_squared: int | None = None
    decode_tokens_squared: int | None = None
    tokens_by_kv_tokens: int | None = None
    prefill_tokens_by_kv_tokens: int | None = None
    decode_tokens_by_kv_tokens: int | None = None
    padded_requests: int | None = None
    padded_tokens: int | None = None
    batch_key: int | None = None
    image_width: int | None = None
    image_height: int | None = None


@dataclass(frozen=True, slots=True)
class Mode:
    """What a form's word for the kind of step means; forms.toml says what the fields are."""

    phase: ServingPhase | None = None
    side: str | None = None
    tokens_per_request: int | None = None
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Form:
    """One way of writing; forms.toml says what the fields mean."""

    name: str
    tool: str
    pattern: re.Pattern[str]
    batch_key: str
    source: str
    title: str
    examples: tuple[str, ...]
    capture: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, Mode] = field(default_factory=dict)


@cache
def forms() -> tuple[Form, ...]:
    """In the order in which they are tried."""
    text = (resources.files("xsp_model.step_annotations") / "forms.toml").read_text(encoding="utf-8")
    return tuple(_form(entry) for entry in tomllib.loads(text)["form"])


def _form(entry: dict[str, Any]) -> Form:
    modes = {name: _mode(mode) for name, mode in entry.get("modes", {}).items()}
    pattern = re.compile(entry["pattern"], re.ASCII)
    return Form(**{**entry, "pattern": pattern, "examples": tuple(entry["examples"]), "modes": modes})


def _mode(entry: dict[str, Any]) -> Mode:
    return Mode(**{**entry, "phase": ServingPhase(entry["phase"]) if "phase" in entry else None})


_MAX_LENGTH = 600  # characters; the longest that engines write are below 300
_COUNTS = ("requests", "tokens", "kv_tokens", "tokens_squared", "tokens_by_kv_tokens")
_SIDES = ("prefill", "decode")
_KEYED = re.compile(r"(\w+)=(\d{1,18})(?:/(\d{1,12}))?(?=\s|$)", re.ASCII)
_Counts = dict[str, int]


def parse_step_annotation(text: str) -> StepAnnotation | None:
    """What the name says; None where no engine that we know writes such a name."""
    return _parse(text) if len(text) <= _MAX_LENGTH else None


def is_serving_step(text: str) -> bool:
    """Whether it is the name of a step that an engine ran, and not of a graph's capture."""
    annotation = parse_step_annotation(text)
    return annotation is not None and not annotation.is_capture


@lru_cache(maxsize=4096)
def _parse(text: str) -> StepAnnotation | None:
    for form in forms():
        if match := form.pattern.fullmatch(text):
            return _read(form, match.groupdict())
    return None


def _read(form: Form, groups: Mapping[str, str | None]) -> StepAnnotation | None:
    written = groups.get("mode")
    mode = _mode_of(form, written)
    if mode is None:
        return None
    counts = {name: int(text) for name, text in groups.items() if text and name not in {"mode", "keyed"}}
    counts |= _counts_by_key({**form.keys, **mode.keys}, groups.get("keyed") or "")
    _split(counts, mode)
    _sum(counts)
    return StepAnnotation(
        tool=form.tool,
        form=form.name,
        is_capture=form.capture,
        serving_phase=None if form.capture else mode.phase or _phase(counts),
        mode=written,
        batch_key=counts.get(f"padded_{form.batch_key}", counts.get(form.batch_key)),
        **counts,
    )


def _mode_of(form: Form, written: str | None) -> Mode | None:
    """What the word means; a form whose words are listed has no others."""
    if written is None or not form.modes:
        return Mode()
    return form.modes.get(written) or form.modes.get(written.upper())


def _counts_by_key(keys: Mapping[str, str], text: str) -> _Counts:
    counts: _Counts = {}
    for key, number, padded in _KEYED.findall(text):
        name = keys.get(key)
        if name is not None:
            counts[name] = int(number)
        if padded and name == "requests":
            counts["padded_requests"] = int(padded)
    return counts


def _split(counts: _Counts, mode: Mode) -> None:
    """Gives plain counts to the side that the mode says, unless both sides have requests."""
    if mode.side is None or any(counts.get(f"{side}_requests") for side in _SIDES if side != mode.side):
        return
    other = next(side for side in _SIDES if side != mode.side)
    for count in _COUNTS:
        if count in counts:
            counts.setdefault(f"{mode.side}_{count}", counts[count])
        counts.setdefault(f"{other}_{count}", 0)
    requests = counts.get(f"{mode.side}_requests")
    if mode.tokens_per_request is not None and requests is not None:
        counts.setdefault(f"{mode.side}_tokens", requests * mode.tokens_per_request)


def _sum(counts: _Counts) -> None:
    """Adds up what both sides have and the name does not say itself; without requests a side has no tokens."""
    for side in _SIDES:
        if counts.get(f"{side}_requests") == 0:
            for count in _COUNTS:
                counts.setdefault(f"{side}_{count}", 0)
    for count in _COUNTS:
        sides = [counts.get(f"{side}_{count}") for side in _SIDES]
        if all(value is not None for value in sides):
            counts.setdefault(count, sum(value or 0 for value in sides))


def _phase(counts: _Counts) -> ServingPhase | None:
    prefill, decode = (counts.get(f"{side}_requests") for side in _SIDES)
    if prefill and decode:
        return ServingPhase.MIXED
    if prefill and decode == 0:
        return ServingPhase.PREFILL
    return ServingPhase.DECODE if decode and prefill == 0 else None
