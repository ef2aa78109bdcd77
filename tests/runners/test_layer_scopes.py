"""Which scopes of TensorFlow's graphs and of JAX's programs are layers, and what the layers are called."""

from __future__ import annotations

from xsp_runners.jax_profiler import layers_of
from xsp_runners.tf_profiler import layer_calls


def test_a_jax_layer_is_a_named_scope_whatever_was_done_to_it() -> None:
    layers = layers_of(
        [
            "jit(step)/jvp(block1)/dense2/dot_general",
            "jit(step)/transpose(jvp(block1))/dense2/transpose",
            "jit(step)/jvp(jit(log_softmax))/sub",
            "jit(step)/jvp()/reduce_sum",
            "jit(step)/mul",
            "w['a']",
        ]
    )
    assert layers == [
        {"scope": "block1", "name": "block1", "type": "block"},
        {"scope": "block1/dense2", "name": "block1/dense2", "type": "dense"},
    ]


def test_loops_and_calls_are_no_layers_but_stand_in_the_scope() -> None:
    layers = layers_of(
        ["jit(f)/net/while/body/closed_call/layer/add", "jit(f)/net/checkpoint/rematted_computation/mul"]
    )
    assert layers == [
        {"scope": "net", "name": "net", "type": "net"},
        {"scope": "net/while/body/closed_call/layer", "name": "net/layer", "type": "layer"},
    ]


def test_what_einsum_writes_is_no_layer() -> None:
    assert [layer["scope"] for layer in layers_of(["jit(f)/mix/bhqk,bkhd->bqhd/dot_general"])] == ["mix"]


def test_a_scope_that_is_nothing_but_a_number_keeps_its_name_as_type() -> None:
    assert [layer["type"] for layer in layers_of(["jit(f)/_1/add", "jit(f)/Conv_0/add"])] == ["Conv", "_1"]


def test_a_keras_layer_goes_by_its_place_in_the_model() -> None:
    assert layer_calls(
        {
            "net": (("net",), "Functional"),
            "net_1": (("net",), "Functional"),
            "net_1/block": (("net", "block"), "Sequential"),
            "net_1/block_1/conv_1": (("net", "block", "conv"), "Conv2D"),
            "": (("net",), "Functional"),
        }
    ) == [
        {"scope": "net", "name": "net", "type": "Functional", "place": 0},
        {"scope": "net_1", "name": "net", "type": "Functional", "place": 0},
        {"scope": "net_1/block", "name": "block", "type": "Sequential", "place": 1},
        {"scope": "net_1/block_1/conv_1", "name": "block/conv", "type": "Conv2D", "place": 2},
    ]


def test_layers_of_two_models_have_the_models_names() -> None:
    layers = layer_calls({"a/conv": (("a", "conv"), "Conv2D"), "b/conv": (("b", "conv"), "Conv2D")})
    assert [layer["name"] for layer in layers] == ["a/conv", "b/conv"]


def test_a_layer_called_twice_is_one_layer() -> None:
    layers = layer_calls({"net/conv": (("net", "conv"), "Conv2D"), "net/conv_1": (("net", "conv"), "Conv2D")})
    assert [(layer["name"], layer["place"]) for layer in layers] == [("conv", 0), ("conv", 0)]
