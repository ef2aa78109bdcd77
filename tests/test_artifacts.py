"""What is built to be given away: an sdist of a checkout, the wheel made of it alone, and xsp from that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from zipfile import ZipFile

import pytest

from xsp import version

_REPO = Path(__file__).resolve().parents[1]
_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_BUILD = "import setuptools.build_meta as build; build.build_{}('dist')"
_WHERE = "import xsp, xsp_ingest, xsp_runners; print(xsp.__file__, xsp_ingest.__file__, xsp_runners.__file__)"
_COMMAND = "import sys; from xsp.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module", name="wheel")
def fixture_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if int(installed_version("setuptools").partition(".")[0]) < 77:
        pytest.skip("setuptools is older than the one that pyproject.toml needs")
    checkout = tmp_path_factory.mktemp("checkout")
    for package in ("xsp", "xsp_analyze", "xsp_ingest", "xsp_model", "runners"):
        shutil.copytree(_REPO / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(_REPO / name, checkout)
    (checkout / "xsp" / "COMMIT").write_text(f"{_COMMIT}\n")  # as `git archive` leaves it
    _run(["-c", _BUILD.format("sdist")], checkout)
    (checkout / "unpacked").mkdir()
    archive = next((checkout / "dist").glob("*.tar.gz"))
    subprocess.run(["tar", "-xzf", archive, "-C", checkout / "unpacked"], check=True)
    (source,) = (checkout / "unpacked").iterdir()
    _run(["-c", _BUILD.format("wheel")], source)
    return next((source / "dist").glob("*.whl"))


def _run(command: list[str], folder: Path, *, packages: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(packages or "")}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_of_the_sdist_reports_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "folder"
    folder.mkdir()
    with ZipFile(wheel) as archive:  # what an installer does with a wheel of pure Python
        archive.extractall(site)
    assert all(Path(each).is_relative_to(site) for each in _run(["-c", _WHERE], folder, packages=site).split())
    assert _run(["-c", _COMMAND, "--version"], folder, packages=site).endswith(f"(commit {_COMMIT})\n")
    trace = _REPO / "fixtures" / "torch_profiler" / "transformer_train_gpu_synthetic" / "trace.json.gz"
    report = folder / "report.html"
    _run(["-c", _COMMAND, "report", "--no-cache", str(trace), "-o", str(report)], folder, packages=site)
    assert report.read_text(encoding="utf-8").rstrip().endswith("</html>")


@pytest.mark.slow
def test_the_wheel_holds_what_types_and_machine_code_need(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"{each}/py.typed" for each in ("xsp", "xsp_analyze", "xsp_ingest", "xsp_model", "xsp_runners")} <= names
    folder = _REPO / "xsp_ingest" / "machine" / "bitcode"
    assert {f"xsp_ingest/machine/bitcode/{path.name}" for path in folder.iterdir()} <= names


@pytest.mark.parametrize("text", [_COMMIT, f"{_COMMIT}-dirty\n"])
def test_the_commit_that_was_written_is_said(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_COMMIT_FILE", tmp_path / "xsp" / "COMMIT")
    (tmp_path / "xsp").mkdir()
    (tmp_path / "xsp" / "COMMIT").write_text(text)
    assert version.commit() == text.strip()


@pytest.mark.parametrize("text", [None, "$Format:%H$\n", "no commit"])
def test_a_commit_that_is_not_known_is_said_to_be_so(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_COMMIT_FILE", tmp_path / "xsp" / "COMMIT")
    (tmp_path / "xsp").mkdir()
    if text is not None:
        (tmp_path / "xsp" / "COMMIT").write_text(text)
    assert version.commit() is None
    assert version.version_line().endswith("(commit unknown)")


@pytest.mark.slow
def test_a_free_threaded_python_is_refused_in_a_sentence(tmp_path: Path) -> None:
    program = (
        "import runpy, sys, sysconfig; real = sysconfig.get_config_var; "
        "sysconfig.get_config_var = lambda name: 1 if name == 'Py_GIL_DISABLED' else real(name); "
        "sys.argv = ['setup.py', '--version']; runpy.run_path('setup.py')"
    )
    shutil.copy(_REPO / "setup.py", tmp_path)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        done.stderr
        == "xsp does not run on free-threaded builds of Python: take the ordinary build of the same version.\n"
    )
