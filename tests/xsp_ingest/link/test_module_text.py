"""What is read in the text of a module's range, and what is not."""

from __future__ import annotations

import pytest

from xsp_ingest.link.range_rules import MAX_LENGTH, ModuleText, module_text

_SGLANG = (
    "{'Module': 'model.model.layers.0.self_attn.q_proj', 'TrainableParams': {'weight': [2112, 7168], 'scale': [17, 5]},"
    " 'Inputs': [[8192, 7168]]}"
)
_TENSORRT_LLM = "{'Module': 'LlamaForCausalLM.model.norm', 'TrainableParams': {}, 'Inputs': [[8, 4096], [8, 4096]]}"
_VLLM = "{'Module': 'Qwen3ForCausalLM.model', 'input_ids': [[8]], 'positions': [[8]]}"
_VLLM_OUTPUTS = "{'Module': 'Qwen3ForCausalLM.model', 'Outputs': [[8, 1024]]}"
_COMPILED = "{'Module': 'Torch Compiled Module (input):LlamaModel', 'Inputs': [[8], [8]]}"
_COMPILED_OUTPUT = "{'Module': 'Torch Compiled Module (output):LlamaModel', 'Outputs': [[8, 4096]]}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_SGLANG, ModuleText("model.model.layers.0.self_attn.q_proj", "q_proj", "[[8192, 7168]]", returned=False)),
        (_TENSORRT_LLM, ModuleText("LlamaForCausalLM.model.norm", "norm", "[[8, 4096], [8, 4096]]", returned=False)),
        (_VLLM, ModuleText("Qwen3ForCausalLM.model", "model", "[[8], [8]]", returned=False)),
        (_VLLM_OUTPUTS, ModuleText("Qwen3ForCausalLM.model", "model", None, returned=True)),
        (_COMPILED, ModuleText("LlamaModel", "LlamaModel", "[[8], [8]]", returned=False)),
        (_COMPILED_OUTPUT, ModuleText("LlamaModel", "LlamaModel", None, returned=True)),
        ("{'Module': 'top.attn'}", ModuleText("top.attn", "attn", None, returned=None)),
        ("{'Module': \"'top'\", 'TrainableParams': {}}", ModuleText("top", "top", None, returned=None)),
        ('{"Module": "a.b", "Inputs": [[]]}', ModuleText("a.b", "b", "[[]]", returned=False)),
        ("{'Module': 'a.b', 'Inputs': [[1, 2], 'text', [None], [1.5], [True]]}",
         ModuleText("a.b", "b", "[[1, 2]]", returned=False)),
    ],
)  # fmt: skip
def test_texts_of_each_framework(text: str, expected: ModuleText) -> None:
    assert module_text(text) == expected


@pytest.mark.parametrize(
    ("path", "static", "layer_type"),
    [
        ("m.layers.0", "", "layers"),
        ("m.experts.3.w1", "", "w1"),
        ("m.head", "{'in_features': 4, 'out_features': 2}", "Linear"),
        ("m.embed", "{'num_embeddings': 9, 'embedding_dim': 2}", "Embedding"),
        ("m.patch", "{'in_chan': 3, 'filter_dim': (14, 14), 'padding_mode': 'zeros', 'transposed': False}", "Conv2d"),
        ("m.up", "{'in_chan': 3, 'filter_dim': (3,), 'transposed': True}", "ConvTranspose1d"),
        ("m.pool", "{'filter_dim': [2, 2], 'dilation': [1, 1]}", "MaxPool"),
        ("m.pool", "{'filter_dim': [2, 2], 'ceil_mode': False, 'count_include_pad': True}", "AvgPool"),
        ("m.act", "{'in_place': True}", "ReLU"),
        ("m.drop", "{'p': 0.1, 'in_place': False}", "Dropout"),
        ("m.norm", "{'num_features': 8, 'epsilon': 1e-05, 'momentum': None}", "BatchNorm"),
    ],
)
def test_the_type_is_the_class_of_torch_where_parameters_tell_it_else_the_name_in_the_parent(
    path: str, static: str, layer_type: str
) -> None:
    parameters = f", 'StaticParams': {static}" if static else ""
    module = module_text(f"{{'Module': '{path}', 'Inputs': [[1]]{parameters}}}")
    assert module is not None
    assert module.layer_type == layer_type


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{'Module': ",
        "{'Module': 'a'",
        "{'Module': ''}",
        "{'Module': 3}",
        "{'Module': ['a']}",
        "{'Module': 'a' 'b'}",
        "{'Module': 'a\\'b'}",
        "{'Module': __import__('os').system('true')}",
        "{'Module': 'a', 'Inputs': 9**9**9}",
        "{'Module': 'a', 'Inputs': " + "9" * 5000 + "}",
        "{'Module': 'a', 'Inputs': " + "[" * 30_000 + "]" * 30_000 + "}",
        "{'Module': 'a', 'Inputs': " + "(" * 30_000,
        "{'Module': 'a', 'Inputs': " + "-" * 30_000 + "1}",
        "{'Module': 'a', 'Inputs': [" + "[1]," * (MAX_LENGTH // 4) + "]}",
        "{'Module': '" + "a" * 1_000_000 + "'}",
        "{'Module'" * 100_000,
    ],
    ids=range(17),
)
def test_what_is_damaged_or_hostile_is_not_read(text: str) -> None:
    assert module_text(text) is None
