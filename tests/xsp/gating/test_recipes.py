"""The action for GitHub and the template for GitLab: their steps in a shell, with stand-ins for what CI brings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.stretched import stretched

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).resolve().parents[3]
_CAPTURES = sorted((Path(__file__).parent / "captures").glob("*.json.gz"))
_EXPRESSION = re.compile(r"\$\{\{ ?(.*?) ?\}\}")
_BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")


def _recipe(name: str) -> Any:  # noqa: ANN401 (whatever YAML holds)
    yaml = pytest.importorskip("yaml", reason="the extra `docs` brings it")
    return yaml.safe_load((_ROOT / "recipes" / name).read_text(encoding="utf-8"))


@pytest.fixture(name="commands")
def fixture_commands(tmp_path: Path) -> Path:
    """A folder of commands: our xsp; gh and curl that write down what they were called with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    called = tmp_path / "called"
    run = "import sys; from xsp.cli.main import main; sys.exit(main())"
    scripts = {
        "xsp": f'PYTHONPATH={_ROOT} exec {sys.executable} -c "{run}" "$@"',
        "gh": f'printf "%s\\n" gh "$@" >>{called}',
        "curl": f'printf "%s\\n" curl "$@" >>{called}',
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(name="repository")
def fixture_repository(tmp_path: Path) -> Path:
    """A repository whose program, told to capture, copies the next of some captures; the change's are 5 % slower."""
    folder = tmp_path / "repository"
    for side, factor in (("base", 1.0), ("change", 1.05)):
        (tmp_path / side).mkdir()
        for number, each in enumerate(_CAPTURES[side == "change" : 10 : 2], 1):
            stretched(each, factor, tmp_path / side / f"{number}.json.gz")
    folder.mkdir()
    _git(folder, "init", "-q", "-b", "main")
    for side in ("base", "change"):
        (folder / "side").write_text(side, encoding="utf-8")
        _git(folder, "add", "side")
        _git(folder, "commit", "-q", "-m", side)
    return folder


def _git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True)


def _capture(tmp_path: Path) -> str:
    return f'cp "{tmp_path}/$(cat side)/$(basename "$XSP_CAPTURE")" "$XSP_CAPTURE"'


def _run(script: str, folder: Path, commands: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [*_BASH, script], cwd=folder, env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def _act(folder: Path, commands: Path, tmp_path: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """The action's steps as a runner takes them: the status, the outputs of `compare`, and what was printed."""
    action = _recipe("github/action.yml")
    output, summary = tmp_path / "output", tmp_path / "summary"
    output.touch()
    values = {f"inputs.{name}": str(each["default"]) for name, each in action["inputs"].items()}
    values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
    values |= {"runner.temp": str(tmp_path / "temp"), "github.event.number": "7", "github.event_name": "pull_request"}
    fixed = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_REPOSITORY": "o/r",
             "GITHUB_BASE_REF": "main"}  # fmt: skip
    printed = ""
    for step in action["runs"]["steps"]:
        if not all(_holds(part, values) for part in step.get("if", "true == true").split(" && ")):
            continue
        environment = {name: _filled(text, values) for name, text in step["env"].items()}
        done = _run(step["run"], folder, commands, **fixed, **environment)
        printed += done.stdout + done.stderr
        outputs = dict(line.split("=", 1) for line in output.read_text(encoding="utf-8").splitlines())
        values |= {f"steps.compare.outputs.{name}": value for name, value in outputs.items()}
        if done.returncode:
            return done.returncode, outputs, printed
    return 0, outputs, printed


def _filled(text: str, values: dict[str, str]) -> str:
    """The text with its expressions computed."""
    return _EXPRESSION.sub(lambda match: values.get(match[1], ""), text)


def _holds(condition: str, values: dict[str, str]) -> bool:
    """A comparison of an expression with a text."""
    left, operator, right = condition.split()
    return (values.get(left, left) == right.strip("'")) is (operator == "==")


def test_what_users_write_never_becomes_part_of_a_script() -> None:
    for step in _recipe("github/action.yml")["runs"]["steps"]:
        assert "${{" not in step["run"], step["name"]


def test_on_github_a_slower_change_is_captured_commented_on_and_failed(
    repository: Path, commands: Path, tmp_path: Path
) -> None:
    status, outputs, printed = _act(
        repository, commands, tmp_path, capture=_capture(tmp_path), captures="3", base_ref="HEAD~1"
    )
    assert (status, outputs["verdict"]) == (1, "regressed"), printed
    summary = (tmp_path / "summary").read_text(encoding="utf-8")
    assert summary.startswith("### 1 of 1 performance rules broken")
    called = (tmp_path / "called").read_text(encoding="utf-8").splitlines()
    assert called[:4] == ["gh", "pr", "comment", "7"]
    assert Path(called[called.index("-F") + 1]).read_text(encoding="utf-8") == summary
    assert not (tmp_path / "temp" / "xsp-gate" / "base").exists()


def test_on_github_captures_that_are_there_are_compared_and_what_is_open_fails_if_asked(
    repository: Path, commands: Path, tmp_path: Path
) -> None:
    sides = {
        "before": f"{tmp_path}/base/*.json.gz",
        "after": f"{tmp_path}/change/1.json.gz\n{tmp_path}/change/2.json.gz",
    }
    rules = "model.latency > +8%\n"
    status, outputs, printed = _act(
        repository, commands, tmp_path, **sides, fail_on=rules, comment="false", fail_on_inconclusive="true"
    )
    assert (status, outputs["verdict"]) == (3, "inconclusive"), printed
    assert not (tmp_path / "called").exists()


def test_on_github_a_side_without_captures_fails(repository: Path, commands: Path, tmp_path: Path) -> None:
    status, outputs, printed = _act(repository, commands, tmp_path, before="nowhere/*.json.gz")
    assert (status, outputs["verdict"]) == (2, "failed")
    assert "there is no capture of the base" in printed


def test_on_gitlab_a_slower_change_is_captured_commented_on_and_failed(
    repository: Path, commands: Path, tmp_path: Path
) -> None:
    job = _recipe("gitlab/performance-gate.yml")[".xsp-performance-gate"]
    variables = {
        **job["variables"],
        "XSP_COMMAND": _capture(tmp_path),
        "XSP_BASE": "HEAD~1",
        "XSP_CAPTURES": "3",
        "XSP_TOKEN": "secret",
    }
    ci = {"CI_API_V4_URL": "https://git.example/api/v4", "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "9"}
    done = _run("\n".join(job["script"]), repository, commands, **variables, **ci)
    assert done.returncode == 1, done.stderr
    assert (repository / "xsp-gate" / "junit.xml").exists()
    called = (tmp_path / "called").read_text(encoding="utf-8").splitlines()
    assert called[-1] == "https://git.example/api/v4/projects/3/merge_requests/9/notes"
    assert "secret" not in done.stdout + done.stderr
