"""Calls as they stand on paper: shapes and types of tensors in order, other inputs as Python values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import Call, Tensor
from xsp_analyze.work_models.registry import shipped_models

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.work_models.call import ModelledWork

__all__ = ["bytes_of", "flop_of", "tensor", "work"]


def tensor(element_type: str, *shape: int) -> Tensor:
    return Tensor(shape, element_type)


def work(name: str, *inputs: object, following: Tensor | None = None, inner: Sequence[str] = ()) -> ModelledWork | None:
    """What the model of this operator says of a call with these inputs: a Tensor, a list of them, or any value."""
    tensors = [_tensors(each) for each in inputs]
    values = [each if tensor is None else None for each, tensor in zip(inputs, tensors, strict=True)]
    model = shipped_models().of(name)
    assert model is not None, name
    return model.work(Call(name, tensors, values, following, inner=inner))


def flop_of(name: str, *inputs: object, inner: Sequence[str] = ()) -> int | None:
    modelled = work(name, *inputs, inner=inner)
    return modelled.flop if modelled else None


def bytes_of(name: str, *inputs: object, inner: Sequence[str] = ()) -> tuple[int | None, int | None]:
    """Read and written."""
    modelled = work(name, *inputs, inner=inner)
    return (modelled.read_bytes, modelled.written_bytes) if modelled else (None, None)


def _tensors(each: object) -> Tensor | tuple[Tensor, ...] | None:
    if isinstance(each, list) and each and all(isinstance(t, Tensor) for t in each):
        return tuple(each)
    return each if isinstance(each, Tensor) else None
