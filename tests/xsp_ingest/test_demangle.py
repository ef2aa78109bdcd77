"""Mangled C++ names."""

from __future__ import annotations

import polars as pl
import pytest

from xsp_ingest.link.demangle import demangle, demangle_column

__all__: list[str] = []


@pytest.mark.parametrize(
    ("mangled", "plain"),
    [
        ("_Z1fv", "f()"),
        (
            "_ZN2at6native12_GLOBAL__N_14CopyINS1_10OpaqueTypeILj16EEEjLi4EEEvPT_",
            (
                "void at::native::(anonymous namespace)::Copy<at::native::(anonymous namespace)::OpaqueType<16u>, "
                "unsigned int, 4>(at::native::(anonymous namespace)::OpaqueType<16u>*)"
            ),
        ),
        ("_Z9vectorAddPKfS0_Pfi.kd", "vectorAdd(float const*, float const*, float*, int)"),
    ],
)
def test_a_mangled_name_is_demangled(mangled: str, plain: str) -> None:
    assert demangle(mangled) == plain


@pytest.mark.parametrize("name", ["ampere_sgemm_64x32_sliced1x4_tn", "", "_Z", "_Znothing of the kind", "_Zé", "_Z\0"])
def test_other_names_stay(name: str) -> None:
    assert demangle(name) == name


def test_a_name_of_absurd_length_stays() -> None:
    assert demangle("_Z1f" + "P" * 100_000 + "v") == "_Z1f" + "P" * 100_000 + "v"


def test_a_deeply_nested_name_does_no_harm() -> None:
    assert isinstance(demangle("_Z1f" + "P" * 8_000 + "v"), str)


def test_a_column_keeps_its_nulls_and_order() -> None:
    names = pl.Series("name", ["_Z1fv", None, "gemm", "_Z1fv"], dtype=pl.Categorical)
    assert demangle_column(names).to_list() == ["f()", None, "gemm", "f()"]
