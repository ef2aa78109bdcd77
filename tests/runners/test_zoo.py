"""Models by name: what the list holds, which source is taken, and that every one of ours runs a step."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from xsp_runners.frameworks.torch_workload import zoo_work
from xsp_runners.run_folder import RunnerError
from xsp_runners.zoo import models as zoo
from xsp_runners.zoo.models import build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_runners.zoo.models import ZooModel

_OURS = [model for model in zoo.models().values() if any(source.library == "own" for source in model.sources)]
_SMALL = {"tensor": (3, 32, 32), "tokens": (8,)}
_TOO_LARGE = ("101", "152", "vgg", "large", "medium", "vit", "alexnet")  # for a test's time or memory
_SLOW_TO_TRAIN = ("50", "bert", "gpt", "unet", "srgan", "edsr", "resnet34")
_PARAMETERS = {  # in millions, as the papers or torchvision's and transformers' documentation give them
    "alexnet": 61.1,
    "bert_base": 110,
    "gpt2": 124.4,
    "mobilenet_v1_1.0_224": 4.2,
    "mobilenet_v2": 3.5,
    "resnet18": 11.7,
    "resnet34": 21.8,
    "resnet50": 25.6,
    "resnet101": 44.5,
    "resnet152": 60.2,
    "vgg16": 138.4,
    "vgg19": 143.7,
    "vit_b_16": 86.6,
}


def _small_enough() -> list[Any]:
    """Models of ours with the mode to run them in; larger ones have no layers that these lack."""
    models = [m for m in _OURS if not any(part in m.name for part in _TOO_LARGE) and "mobilenet_v1_0" not in m.name]
    trained = [model for model in models if not any(part in model.name for part in _SLOW_TO_TRAIN)]
    pairs = [(model, "inference") for model in models] + [(model, "training") for model in trained]
    return [pytest.param(model, mode, id=f"{model.name}-{mode}") for model, mode in pairs]


def test_the_list_has_at_least_the_papers_number_of_models_in_its_classes() -> None:
    models = zoo.models().values()
    assert len(models) >= 65
    tasks = {"image classification", "object detection", "instance segmentation", "semantic segmentation"}
    assert tasks | {"super resolution", "language model"} <= {model.task for model in models}


@pytest.mark.parametrize("model", zoo.models().values(), ids=lambda model: model.name)
def test_an_entry_says_what_it_takes(model: ZooModel) -> None:
    assert model.sources
    assert {source.library for source in model.sources} <= set(zoo.SOURCES)
    assert model.input in {"tensor", "images", "tokens", "tokens-to-tokens"}
    assert model.shape is not None
    assert len(model.shape) == (1 if model.input.startswith("tokens") or model.name == "mlp" else 3)
    assert 1 <= model.batch_sizes[0] <= model.batch_sizes[1]


def test_a_librarys_own_name_is_known_too() -> None:
    assert zoo.find("timm/mixer_b16_224").name == "mlp_mixer_b_16"
    assert [source.library for source in zoo.find("timm/resnet18").sources] == ["timm"]
    unlisted = zoo.find("timm/resnet26d")
    assert (unlisted.name, unlisted.shape, unlisted.sources[0].name) == ("resnet26d", None, "resnet26d")


def _installed(monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """Of the libraries, only these are installed; each builds its own name."""
    for name in ("torchvision", "timm", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    if "timm" in libraries:
        timm = ModuleType("timm")
        timm.create_model = lambda name, pretrained: f"{name} {pretrained}"  # type: ignore[attr-defined]
        timm.__version__ = "9.9"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "timm", timm)


def test_the_first_source_that_is_installed_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, "timm")
    built = build(zoo.find("resnet18"))
    assert (built.model, built.library, built.version) == ("resnet18 False", "timm", "9.9")


def test_a_model_that_nothing_here_can_build_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch)
    with pytest.raises(RunnerError, match=r"^swin_t needs torchvision or timm: pip install torchvision$"):
        build(zoo.find("swin_t"))


@pytest.mark.torch
class TestOurs:
    @pytest.fixture(autouse=True)
    def torch(self) -> Iterator[Any]:
        torch = pytest.importorskip("torch", reason="torch is not installed")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # more only get in each other's way on a busy machine
        yield torch
        torch.set_num_threads(threads)

    @pytest.mark.parametrize("name", sorted(_PARAMETERS))
    def test_one_of_ours_has_the_size_of_its_namesake(self, torch: Any, name: str) -> None:  # noqa: ANN401
        with torch.device("meta"):
            built = build(_own(name))
        assert sum(p.numel() for p in built.model.parameters()) / 1e6 == pytest.approx(_PARAMETERS[name], rel=0.01)

    @pytest.mark.parametrize("model", _OURS, ids=lambda model: model.name)
    def test_all_of_ours_can_be_built(self, torch: Any, model: ZooModel) -> None:  # noqa: ANN401
        with torch.device("meta"):
            assert build(_own(model.name)).library == "own"

    @pytest.mark.parametrize(("model", "mode"), _small_enough())
    def test_one_of_ours_runs_a_step(self, model: ZooModel, mode: str) -> None:
        tiny = model.name in {"mlp", "convnet", "transformer"}
        work = zoo_work(
            sys.modules["torch"],
            f"own/{model.name}",
            mode=mode,
            batch=2,
            device="cpu",
            precision="fp32",
            shape=None if tiny else _SMALL[model.input],
        )
        work.step()
        assert work.facts["model"] == {"name": model.name, "task": model.task, "source": "own"}

    def test_weights_and_inputs_are_those_of_the_seed(self, torch: Any) -> None:  # noqa: ANN401
        outputs = []
        for _ in range(2):
            torch.manual_seed(3)
            outputs.append(zoo_work(torch, "convnet", mode="inference", batch=2, device="cpu", precision="fp32").step())
        assert torch.equal(*outputs)

    def test_a_shape_that_the_model_cannot_take_is_refused(self, torch: Any) -> None:  # noqa: ANN401
        with pytest.raises(RunnerError, match=r"takes tokens: --input-shape is their number, not 3x8x8"):
            zoo_work(torch, "own/gpt2", mode="inference", batch=1, device="cpu", precision="fp32", shape=(3, 8, 8))


def _own(name: str) -> ZooModel:
    model = zoo.models()[name]
    return replace(model, sources=[source for source in model.sources if source.library == "own"])


_NEEDS_DATA = {"regnet_y_8gf"}  # torchvision's constructor reads numbers back, of which the device meta has none


@pytest.mark.torch
@pytest.mark.parametrize("library", ["torchvision", "timm", "transformers"])
def test_every_name_in_the_list_is_known_to_its_library(library: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip(library, reason=f"{library} is not installed", exc_type=ImportError)
    pairs = [
        (model, source) for model in zoo.models().values() for source in model.sources if source.library == library
    ]
    assert pairs
    for model, source in pairs:
        if source.name not in _NEEDS_DATA or library != "torchvision":
            with torch.device("meta"):
                assert build(replace(model, sources=[source])).library == library, model.name


@pytest.mark.parametrize(
    ("name", "canonical"),
    [("bert-base", "bert_base"), ("BERT_Base", "bert_base"), ("own/bert-base", "bert_base"), ("ResNet18", "resnet18")],
)
def test_names_are_found_however_they_are_joined(name: str, canonical: str) -> None:
    assert zoo.find(name).name == canonical


def test_no_two_names_are_one_when_they_are_folded() -> None:
    assert len({zoo._fold(name) for name in zoo.models()}) == len(zoo.models())
