"""Models of other distributions, through their entry point."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers.work_metrics import two_operators, work_of
from xsp_analyze.work_models.registry import all_models
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_MODULE = """
from xsp_analyze.classification import KernelClass
from xsp_analyze.work_models.registry import Model
from xsp_analyze.work_models.call import ModelledWork


def count(arguments):
    tensor = arguments.tensor("x")
    return None if tensor is None else ModelledWork(1000, 0, tensor.bytes, 8)


def models():
    yield Model(("my::op", "aten::mm"), count, KernelClass.ATTENTION, "toy", {"x": 0})


def others():
    return ["no model"]


nothing = 3
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Puts a package with this entry point on the path, as an installer lays it out."""

    def with_entry_point(target: str) -> None:
        folder = tmp_path / "site"
        metadata = folder / "toy_models-1.0.dist-info"
        metadata.mkdir(parents=True)
        (folder / "toy_models.py").write_text(_MODULE, encoding="utf-8")
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-models\nVersion: 1.0\n", encoding="utf-8")
        (metadata / "entry_points.txt").write_text(f"[xsp.work_models]\ntoy = toy_models:{target}\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(folder))
        all_models.cache_clear()

    yield with_entry_point
    sys.modules.pop("toy_models", None)
    all_models.cache_clear()


def test_models_of_an_installed_package_go_before_ours(tmp_path: Path, install: Callable[[str], None]) -> None:
    install("models")
    # (2, 5) of four bytes in, 8 out; my::op holds an aten::mm, which counts with it.
    assert work_of(two_operators(tmp_path)) == [
        ("my::op", 1, 1000.0, 48.0, 10_000, 1.0),
        ("aten::mm", 1, 1000.0, 48.0, 4_000, 1.0),
    ]
    assert all_models().of("aten::bmm") is not None


@pytest.mark.parametrize("target", ["others", "nothing"])
def test_an_entry_point_that_gives_no_models_is_named(
    tmp_path: Path, install: Callable[[str], None], target: str
) -> None:
    install(target)
    with pytest.raises(
        XspError, match=r"the entry point toy of xsp\.work_models is no callable that gives work models"
    ):
        work_of(two_operators(tmp_path))


def test_an_entry_point_that_cannot_be_loaded_is_named(tmp_path: Path, install: Callable[[str], None]) -> None:
    install("not_there")
    with pytest.raises(XspError, match=r"the entry point toy of xsp\.work_models cannot be loaded \(AttributeError"):
        work_of(two_operators(tmp_path))
