"""Short labels of kernels, and the precision that their names tell."""

from __future__ import annotations

import pytest

from xsp_analyze.classification import label_of, precision_of
from xsp_analyze.classification.labels import MAX_LABEL

_COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#15}::operator()() const::"
    "{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>"
)
_THRESHOLD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, at::native::"
    "(anonymous namespace)::threshold_kernel_impl<float>(at::TensorIteratorBase&, float, float)::{lambda(float)#1}>"
)
_CUTLASS = "void cutlass::Kernel<cutlass_80_tensorop_{}_256x64_16x4_tn_align1>(cutlass_80_tensorop_{}::Params)"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (_COPY, "copy bf16"),
        (_THRESHOLD, "threshold fp32"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >", "add bf16"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >", "fill fp32"),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >",
            "mean fp32",
        ),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256_MI16x16x1_SN", "GEMM bf16 64x32x256"),
        ("Cijk_Ailk_Bjlk_HHS_BH_MT128x128x32_MI32x32x8x1_SN", "GEMM fp16 128x128x32"),
        ("Cijk_Ailk_Bjlk_SB_MT64x16x16_MI16x16x4x1_SN", "GEMM fp32 64x16x16"),
        (_CUTLASS.format("s1688gemm", "s1688gemm"), "GEMM tf32 256x64x16 tn"),
        (_CUTLASS.format("bf16_s16816gemm_bf16", "bf16_s16816gemm_bf16"), "GEMM bf16 256x64x16 tn"),
        ("ampere_sgemm_128x64_nn", "GEMM fp32 128x64 nn"),
        ("volta_dgemm_128x64_nt", "GEMM fp64 128x64 nt"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1", "GEMM bf16 64x64x64"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3", "GEMM fp32 64x256x8"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "GEMM bf16 192x192x64"),
        ("cudnn_volta_scudnn_128x64_relu_small_nn_v1", "conv fp32 128x64 relu_small"),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "conv winograd fp32 128x128"),
        ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32_wt32x32x8_ws1x2", "conv wrw bf16 128x256x32"),
        (
            "void flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, cutlass::bfloat16_t>>",
            "flash_fwd bf16 head 128 128x64",
        ),
        ("triton_poi_fused_addmm_silu_12", "triton addmm_silu_12"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "expert GEMM fp4 128x128x128 swiglu"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce bf16"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce fp32"),
        ("void clover::par_ranged2d_kernel<PdV_kernel(bool, clover::Buffer2D<double> &)::[lambda(int)]>", "PdV fp64"),
        ("Im3d2Col.kd", "conv Im3d2Col"),
        ("wrapped_broadcast.kd", "wrapped_broadcast"),
        ("my_kernel<float>(float*)", "my fp32"),
        ("mystery", "mystery"),
    ],
)
def test_labels_say_what_precision_and_size(name: str, label: str) -> None:
    assert label_of(name) == label


def test_kernels_that_differ_in_tile_layout_or_fusion_differ_in_their_labels() -> None:
    names = [
        *(f"volta_sgemm_{tile}_{layout}" for tile in ("64x64", "128x64") for layout in ("nn", "nt", "tn")),
        *(f"triton_poi_fused_add_mul_{n}" for n in range(3)),
        *(f"Cijk_Alik_Bljk_BBS_BH_MT{tile}_MI16x16x1" for tile in ("64x64x64", "64x64x128")),
    ]
    assert len({label_of(name) for name in names}) == len(names)


def test_a_long_label_loses_its_middle_and_keeps_the_number_at_its_end() -> None:
    label = label_of("triton_red_fused__to_copy_add_addmm_div_empty_like_mean_mul_neg_pow_rsqrt_stack_sub_31")
    assert len(label) == MAX_LABEL
    assert label.startswith("triton to_copy_add")
    assert label.endswith("_31")


def test_a_copy_keeps_its_name() -> None:
    assert label_of("Memcpy HtoD (Pageable -> Device)", "memcpy") == "Memcpy HtoD (Pageable -> Device)"


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("turing_h1688gemm_128x128_ldg8_stages_32x1_nn", "fp16"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x64", "tf32"),
        ("void gemv2T_kernel_val<int, int, __half, __half, __half, float>", "fp16"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<long>, std::array>", "int64"),
        ("mystery", None),
        ("Im3d2Col.kd", None),
    ],
)
def test_a_precision_is_told_or_unknown(name: str, precision: str | None) -> None:
    assert precision_of(name) == precision
