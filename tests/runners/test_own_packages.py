"""A user's own package `runners`: it does not get in the way of `xsp collect`, and what we install leaves it alone."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

_REPO = Path(__file__).resolve().parents[2]
_ON_CPU = ("--device", "cpu", "--threads", "1", "--batch-size", "1", "--warmup", "1", "--steps", "2")

_OWN = """
import json, sys
import runners, steps, zoo
seen = {name: getattr(sys.modules.get(name), "__file__", None) for name in ("runners", "steps", "zoo", "xsp_runners")}
with open("seen.json", "w") as file:
    json.dump({"files": seen, "path": sys.path}, file)
"""
_WORKLOAD = f"{_OWN}\ndef build(batch, device):\n    return lambda: None\n"
_SCRIPT = f"""{_OWN}
from xsp_runners.steps import xsp_step
for _ in range(9):
    with xsp_step(batch_size=1):
        pass
"""


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path) -> Path:
    """Where a user works: a package called as our folder is, and modules called as two of ours."""
    own = tmp_path / "user" / "runners"
    own.mkdir(parents=True)
    (own / "__init__.py").touch()
    (own / "work.py").write_text(_WORKLOAD)
    (own.parent / "train.py").write_text(_SCRIPT)
    for name in ("steps", "zoo", "collect"):
        (own.parent / f"{name}.py").touch()
    return own.parent


@pytest.fixture(name="wheel", scope="module")
def fixture_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from a copy of what it is built from."""
    version = importlib.metadata.version("setuptools")
    if int(version.partition(".")[0]) < 77:
        pytest.skip(f"setuptools {version} is older than the one that pyproject.toml needs")
    copy = tmp_path_factory.mktemp("copy")
    for package in ("xsp", "xsp_analyze", "xsp_ingest", "xsp_model", "runners"):
        shutil.copytree(_REPO / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(_REPO / name, copy)
    program = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    subprocess.run([sys.executable, "-c", program], cwd=copy, check=True, capture_output=True)
    return next((copy / "dist").glob("*.whl"))


@pytest.fixture(name="installed")
def fixture_installed(wheel: Path, tmp_path: Path) -> Path:
    """The wheel unpacked, which is what an installer does with one of pure Python."""
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


def _run(command: list[str], folder: Path, packages: Path) -> subprocess.CompletedProcess[str]:
    """In the user's folder, which stands on Python's path before `packages`, as if its package were installed too."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(packages)])}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def _collected(folder: Path, packages: Path, *options: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from xsp.cli.main import main; sys.exit(main())"
    return _run(["-c", program, "collect", "--levels", "M", "-o", "runs", *_ON_CPU, *options], folder, packages)


def _check_seen(folder: Path, runners: Path) -> None:
    """The workload got its own modules, ours under our name only, and our folder is nowhere it looks for its own."""
    seen = json.loads((folder / "seen.json").read_text())
    own = {"runners": folder / "runners" / "__init__.py", "steps": folder / "steps.py", "zoo": folder / "zoo.py"}
    assert seen["files"] == {name: str(path) for name, path in {**own, "xsp_runners": runners / "__init__.py"}.items()}
    assert str(runners) not in seen["path"]


def test_a_dry_run_names_our_level_process_where_the_user_has_runners(folder: Path) -> None:
    done = _collected(folder, _REPO, "--workload", "runners.work:build", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(_REPO / "runners" / "torch_levels.py") in done.stdout


@pytest.mark.torch
@pytest.mark.parametrize("work", [("--workload", "runners.work:build"), ("--script", "train.py")])
def test_a_workload_gets_its_own_runners_and_collect_gets_ours(folder: Path, work: tuple[str, str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = _collected(folder, _REPO, *work)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "runs" / "m" / "run.json").read_text())["level"] == "M"
    _check_seen(folder, _REPO / "runners")


@pytest.mark.slow
@pytest.mark.torch
def test_a_copy_of_the_folder_under_any_name_gives_the_workload_its_own_runners(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    copied = tmp_path / "gpu machine" / "tools"
    shutil.copytree(_REPO / "runners", copied, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--workload", "runners.work:build", "--levels", "M", "-o", "runs", *_ON_CPU]
    done = _run([str(copied / "collect.py"), *options], folder, tmp_path / "none")
    assert done.returncode == 0, done.stderr
    _check_seen(folder, copied)


def test_a_file_started_by_its_path_in_a_process_of_ours_takes_its_folder_off_the_path(tmp_path: Path) -> None:
    program = (
        "import runpy, sys; folder = sys.argv.pop()\n"
        "for name in ('cupti', 'torch_levels'):\n"  # as the one starts the other
        "    sys.path.insert(0, folder)\n"
        "    runpy.run_path(f'{folder}/{name}.py', run_name='not_main')\n"
        "    assert folder not in sys.path\n"
        "assert sys.modules['xsp_runners'].__path__ == [folder]\n"
        "assert 'runners' not in sys.modules and 'steps' not in sys.modules\n"
    )
    done = _run(["-c", program, str(_REPO / "runners")], tmp_path, _REPO)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_wheel_has_the_runners_under_our_name_only(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names if not name.partition("/")[0].endswith(".dist-info")} == {
        *("xsp", "xsp_analyze", "xsp_ingest", "xsp_model", "xsp_runners")
    }
    ours = {str(path.relative_to(_REPO / "runners")) for path in (_REPO / "runners").rglob("*.*")}
    installed = {name.partition("/")[2] for name in names if name.startswith("xsp_runners/")}
    assert installed == {name for name in ours if not name.endswith(".pyc")}


@pytest.mark.slow
def test_an_installed_xsp_collects_where_the_user_has_runners(folder: Path, installed: Path) -> None:
    done = _collected(folder, installed, "--workload", "runners.work:build", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(installed / "xsp_runners" / "torch_levels.py") in done.stdout
    program = "import runners, xsp, xsp_runners.steps; print(runners.__file__)"
    assert _run(["-c", program], folder, installed).stdout.strip() == str(folder / "runners" / "__init__.py")


@pytest.mark.slow
@pytest.mark.torch
def test_a_workload_under_an_installed_xsp_gets_its_own_runners(folder: Path, installed: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = _collected(folder, installed, "--workload", "runners.work:build")
    assert done.returncode == 0, done.stderr
    _check_seen(folder, installed / "xsp_runners")
