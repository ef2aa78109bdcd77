"""Mangled C++ names."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_ingest.staging.cuda_names import demangle, demangle_column

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_name_that_stands_for_gigabytes_stays() -> None:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    name = "1A"  # pair<pair<..., the same again>, the same again>: twice as long with every step
    for step in range(30):
        name = f"{'St4pairI' if step == 29 else 'S_I'}{name}S{digits[step]}_E"
    assert demangle(f"_Z1f{name}") == f"_Z1f{name}"
    assert demangle("_Z1fS_" + "9" * 500) == "_Z1fS_" + "9" * 500


@pytest.mark.real
def test_every_name_of_a_real_program_is_demangled(real_dir: Path) -> None:
    path = real_dir / "rocprof" / "dispatches.mi350x.rocprofv3.json.gz"
    symbols = json.loads(gzip.decompress(path.read_bytes()))["rocprofiler-sdk-tool"][0]["kernel_symbols"]
    expected = {s["kernel_name"]: s["demangled_kernel_name"] for s in symbols if s["kernel_name"].startswith("_Z")}
    assert len(expected) == 4_446
    demangled = {name: demangle(name) for name in expected}
    different = {name for name in demangled if demangled[name] != expected[name].removesuffix(" [clone .kd]")}
    assert not any(demangled[name].startswith("_Z") for name in demangled)
    assert len(different) == 12
    assert all(".intern." in name for name in different)  # copies made by the compiler; how they are marked differs


def test_a_column_keeps_its_nulls_and_order() -> None:
    names = pl.Series("name", ["_Z1fv", None, "gemm", "_Z1fv"], dtype=pl.Categorical)
    assert demangle_column(names).to_list() == ["f()", None, "gemm", "f()"]
