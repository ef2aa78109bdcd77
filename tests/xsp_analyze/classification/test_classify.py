"""What single activities are: by the operator, by the name, by the layer."""

from __future__ import annotations

import pytest

from xsp_analyze.classification import KernelClass, by_name, class_of_operator, classify

_ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
        ("ncclDevKernel_Reduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce"),
        ("void ncclDevKernel_Generic<1>()", None),
        ("rcclGenericKernel", None),
        ("mscclKernel_Sum_half_LL(ncclDevComm*)", None),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)", "all_reduce"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "all_reduce"),
        ("multimem_all_reduce_kernel", "all_reduce"),
        ("void c10d::symmetric_memory::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, false>()", "all_reduce"),
        ("two_shot_all_reduce_kernel", "all_reduce"),
        ("void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8, true>(AllReduceParams)", "all_reduce"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<8>()", "all_reduce"),
        ("void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot>()", "all_reduce"),
        ("void deep_ep::internode_ll::dispatch<true, 7168>(void*)", "dispatch"),
        ("void deep_ep::intranode::combine<__nv_bfloat16, 8>(__nv_bfloat16*)", "combine"),
        ("nvshmemi_alltoall_kernel", None),
    ],
)
def test_communication_is_told_by_the_kernel_s_name(name: str, collective: str | None) -> None:
    classified = classify("kernel", name, "aten::mul")  # whatever launched it
    assert (classified.kernel_class, classified.collective) == (KernelClass.COMMUNICATION, collective)


@pytest.mark.parametrize(
    "name",
    [
        "sgemm_nccl_like",
        _ADD,
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<bool, at::native::and_kernel_cuda>>",
        "void splitKreduce_kernel<float, float, float>(cublasSplitKParams<float>)",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)",
        "void cub::DeviceReduceSingleTileKernel<cub::DeviceReducePolicy<float>>(float*)",
        "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1",
        "triton_poi_fused_all_reduce_like_add_0_scatter",
    ],
)
def test_names_that_only_sound_like_communication_are_none(name: str) -> None:
    classified = by_name(name)
    sounds = "all_reduce" in name  # a compiled graph names its fusions after what is in them
    assert sounds or classified is None or classified.kernel_class != KernelClass.COMMUNICATION


def test_a_router_s_kernel_is_the_experts_though_its_operator_is_called_topk() -> None:
    assert classify("kernel", "_topk_forward", "TopK").kernel_class == KernelClass.MIXTURE_OF_EXPERTS
    assert classify("kernel", "gatherTopK", "TopK").kernel_class == KernelClass.SORTING


def test_the_operator_decides_before_the_kernel_s_name() -> None:
    gemm = "volta_sgemm_64x64_nt"
    assert classify("kernel", gemm).kernel_class == KernelClass.MATRIX_PRODUCT
    assert classify("kernel", gemm, "aten::cudnn_convolution").kernel_class == KernelClass.CONVOLUTION


def test_an_operator_that_says_nothing_leaves_it_to_the_name_and_the_layer_comes_last() -> None:
    assert classify("kernel", _ADD, "torch::autograd::AccumulateGrad").kernel_class == KernelClass.ELEMENTWISE
    assert classify("kernel", "mystery", "my::op", "LayerNorm").kernel_class == KernelClass.NORMALISATION
    assert classify("kernel", _ADD, None, "LayerNorm").kernel_class == KernelClass.ELEMENTWISE
    assert classify("kernel", "mystery").kernel_class == KernelClass.OTHER


def test_foreach_is_no_optimizer_by_itself_but_in_a_step_of_it() -> None:
    plus = "void multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2>, std::plus<float>>"
    assert classify("kernel", plus, "aten::_foreach_add_").kernel_class == KernelClass.ELEMENTWISE
    assert classify("kernel", plus, "aten::_foreach_add_", in_optimizer=True).kernel_class == KernelClass.OPTIMIZER
    assert classify("kernel", plus.replace("BinaryOpListAlpha", "Adam")).kernel_class == KernelClass.OPTIMIZER


def test_what_an_optimizer_s_step_multiplies_copies_or_sends_remains_that() -> None:
    assert classify("kernel", "volta_sgemm_64x64_nt", in_optimizer=True).kernel_class == KernelClass.MATRIX_PRODUCT
    assert classify("memcpy", "Memcpy DtoD", in_optimizer=True).kernel_class == KernelClass.COPY
    nccl = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    assert classify("kernel", nccl, in_optimizer=True).kernel_class == KernelClass.COMMUNICATION


def test_a_copy_is_one_whoever_launched_it() -> None:
    assert classify("memcpy", "Memcpy HtoD (Pageable -> Device)", "aten::mm").kernel_class == KernelClass.COPY
    assert classify("memset", "Memset (Device)", "aten::convolution").kernel_class == KernelClass.MEMSET


def test_copies_between_devices_that_a_collective_launched_are_communication() -> None:
    gather = classify("memcpy", "Memcpy PtoP (Device -> Device)", "c10d::_allgather_base_")
    assert (gather.kernel_class, gather.collective) == (KernelClass.COMMUNICATION, "all_gather")
    assert classify("memcpy", "Memcpy DtoD", "c10d::_allgather_base_").kernel_class == KernelClass.COPY
    assert classify("memcpy", "Memcpy PtoP (Device -> Device)", "aten::copy_").kernel_class == KernelClass.COPY


def test_a_rotary_embedding_is_elementwise() -> None:
    assert classify("kernel", "rope_norm<true, float>", None).kernel_class == KernelClass.ELEMENTWISE
    assert classify("kernel", "some_kernel", "_C::rotary_embedding").kernel_class == KernelClass.ELEMENTWISE
    assert classify("kernel", "set_property_kernel", None).kernel_class == KernelClass.OTHER


def test_a_library_of_lambdas_is_no_lamb() -> None:
    copy = "void unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIterator&)::{lambda()#2}>"
    assert classify("kernel", copy).kernel_class == KernelClass.COPY


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten::add_", "elementwise"),
        ("aten::_foreach_add_", "elementwise"),
        ("AddmmBackward0", "matrix product"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "matrix product"),
        ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "other"),
        ("aten::convolution_backward", "convolution"),
        ("aten::conj", "elementwise"),
        ("aten::_to_copy", "copy"),
        ("aten::item", "copy"),
        ("aten::scaled_dot_product_attention", "attention"),
        ("aten::_log_softmax", "softmax"),
        ("aten::nll_loss_forward", "reduction"),
        ("aten::cumsum", "sort and scan"),
        ("replica_1/bert/transformer/layer_3/self_attention/value/einsum/Einsum", "matrix product"),
        ("replica_1/bert/transformer/layer_3/dropout_1/dropout/Cast", "copy"),
        ("jit(forward)/conv_general_dilated", "convolution"),
        ("jit(dot)/dot_general", "matrix product"),
        ("vllm::moe_forward", "mixture of experts"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("Conv2d", "convolution"),
        ("Linear", "matrix product"),
        ("BatchNorm2d", "normalisation"),
        ("GraphModule", "other"),
        ("cudnnConvolutionForward", "convolution"),
        ("miopenPoolingBackward", "pooling"),
        ("cublasSgemm_v2", "matrix product"),
        ("_backward_Convolution", "convolution"),
        ("FullyConnected", "matrix product"),
        ("elemwise_add", "elementwise"),
        ("/encoder/layer.0/MatMul_kernel_time", "matrix product"),
        ("wrapped_reduce", "reduction"),
        ("wrapped_transpose.2", "copy"),
        ("all-reduce.1", "communication"),
        ("record_param_comms", "communication"),
        ("vllm::all_reduce", "communication"),
        ("c10d::_reduce_scatter_base_", "communication"),
        ("fsdp::all_gather_copy_in", "other"),  # its kernels copy, whatever it is for
        ("FSDP::post_backward_reduce", "other"),
        ("nccl:_all_gather_base", "communication"),
        ("CopyBackwards", "copy"),
        ("aten::index_put_", "embedding and gather"),
        ("aten::linalg_vector_norm", "reduction"),
        ("aten::native_dropout", "elementwise"),
        ("aten::_fused_adamw_", "optimizer"),
        ("convert_element_type", "copy"),
    ],
)
def test_classes_of_operators_and_layers(operator: str, expected: str) -> None:
    assert class_of_operator(operator) == expected


@pytest.mark.parametrize(
    ("name", "kernel_class"),
    [
        ("fp16x2_hcudnn_fp16x2_128x64_relu_interior_nn_v1", KernelClass.CONVOLUTION),
        ("maxwell_scudnn_128x64_relu_small_nn_v1", KernelClass.CONVOLUTION),
        ("void mul_mat_vec_q<(ggml_type)12, 1, false>(void const*, void const*, float*)", KernelClass.MATRIX_PRODUCT),
        ("void mul_mat_q<(ggml_type)8, 64, 8, false>(char const*, int const*, float*)", KernelClass.MATRIX_PRODUCT),
        ("void cuPoolingLayer::poolCHW_PQT<2, 2, 2, 2>(float const*, float*)", KernelClass.POOLING),
        ("generatedNativePointwise", KernelClass.ELEMENTWISE),
    ],
)
def test_kernels_of_runtimes_without_a_framework(name: str, kernel_class: KernelClass) -> None:
    assert classify("kernel", name).kernel_class is kernel_class
