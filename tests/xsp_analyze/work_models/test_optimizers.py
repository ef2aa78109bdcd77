"""Updates of lists of tensors, worked out by hand; what real calls write: `test_memory_bound`."""

from __future__ import annotations

from dataclasses import replace

from tests.helpers.paper_calls import tensor
from xsp_analyze.work_models.call import UNKNOWN_TYPE, Call, ModelledWork, Tensor
from xsp_analyze.work_models.registry import shipped_models

_LIST = (tensor(UNKNOWN_TYPE, 10, 4), tensor(UNKNOWN_TYPE, 7))  # 47 elements


def work(name: str, *inputs: Tensor | tuple[Tensor, ...] | None, precision: str | None = "bf16") -> ModelledWork | None:
    model = shipped_models().of(name)
    assert model is not None
    return model.work(Call(name, inputs, (None,) * len(inputs), kernel_precision=precision))


def test_lists_count_all_their_tensors() -> None:
    assert work("aten::_foreach_add_", _LIST, _LIST, None) == ModelledWork(0, 47, 4 * 47, 2 * 47)
    assert work("aten::_foreach_add_", _LIST, None) == ModelledWork(0, 47, 2 * 47, 2 * 47)
    assert work("aten::_foreach_addcdiv_", _LIST, _LIST, _LIST, None) == ModelledWork(0, 3 * 47, 6 * 47, 2 * 47)
    assert work("aten::_foreach_sqrt", _LIST) == ModelledWork(0, 47, 2 * 47, 2 * 47)
    assert work("aten::_foreach_mul_", _LIST, tensor("fp32")) == ModelledWork(0, 47, 2 * 47 + 4, 2 * 47)


def test_copies_and_fills_of_lists_do_not_read_what_they_write() -> None:
    assert work("aten::_foreach_copy_", _LIST, _LIST, None) == ModelledWork(0, 0, 2 * 47, 2 * 47)
    assert work("aten::_foreach_zero_", _LIST) == ModelledWork(0, 0, 0, 2 * 47)


def test_a_norm_is_one_element_a_tensor() -> None:
    assert work("aten::_foreach_norm", _LIST, None, None, precision="fp32") == ModelledWork(0, 2 * 47, 4 * 47, 4 * 2)


def test_fused_adam_reads_the_gradients_and_updates_the_rest() -> None:
    steps = (tensor(UNKNOWN_TYPE), tensor(UNKNOWN_TYPE))
    lists = (_LIST, _LIST, _LIST, _LIST)
    adam = work("aten::_fused_adamw_", *lists, (), steps, precision="fp32")
    assert adam == ModelledWork(0, 12 * 47, 4 * (4 * 47 + 2), 4 * 3 * 47)
    amsgrad = work("aten::_fused_adamw_", *lists, _LIST, steps, precision="fp32")
    assert amsgrad == ModelledWork(0, 12 * 47, 4 * (5 * 47 + 2), 4 * 4 * 47)


def test_lists_of_unknown_types_are_not_known() -> None:
    assert work("aten::_foreach_add_", _LIST, _LIST, None, precision=None) is None
    typed = tuple(replace(each, element_type="fp64") for each in _LIST)
    assert work("aten::_foreach_sqrt_", typed, precision=None) == ModelledWork(0, 47, 8 * 47, 8 * 47)
