"""The work that the shipped models tell of one call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import call_of
from xsp_analyze.work_models.registry import shipped_models

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.work_models.call import ModelledWork

__all__ = ["BF16", "work"]


BF16 = "c10::BFloat16"


def work(
    name: str,
    shapes: Sequence[Sequence[int]],
    types: Sequence[str],
    concrete: Sequence[str] = (),
    strides: Sequence[Sequence[int]] | None = None,
) -> ModelledWork | None:
    """Of a call as Kineto writes it; scalars have the shape [] and the type Scalar."""
    texts = [json.dumps(each) for each in (shapes, types, strides or [], [*concrete])]
    call, model = call_of(name, *texts), shipped_models().of(name)
    assert call is not None
    assert model is not None
    return model.work(call)
