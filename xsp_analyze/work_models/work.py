"""What a call has to do at least."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOTHING", "ModelledWork"]


@dataclass(frozen=True, slots=True)
class ModelledWork:
    """The least work of one call. A field that is None is not known; 0 says that there is none.

    `flop`: of products and convolutions, two a multiply-add: what matrix units can do, and what MFU counts.
    `vector_flop`: all other arithmetic, one an operation (an exponential or a root is one).
    `read_bytes`, `written_bytes`: each operand once, as if caches kept everything for the length of the call.
    `bus_bytes`: of collectives, what a rank must at least send to others.
    `precision`: what the products are computed in, as peaks are named without `_tensor`: fp32, bf16, fp8, int8, ...;
    None: as the first operand is.
    """

    flop: int | None = 0
    vector_flop: int = 0
    read_bytes: int | None = None
    written_bytes: int | None = None
    bus_bytes: int | None = None
    precision: str | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes read and written; None where either is not known."""
        if self.read_bytes is None or self.written_bytes is None:
            return None
        return self.read_bytes + self.written_bytes


NOTHING = ModelledWork(0, 0, 0, 0)
"""Of calls that only look at their operands in another way."""
