"""What the name of a serving step says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ServingPhase", "StepAnnotation"]


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
