"""Typed configuration, errors and the end of orphans."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from local.cli import RUN, RecipeError, from_mapping, parse_conf


@dataclass(frozen=True)
class Inner:
    depth: int


@dataclass(frozen=True)
class Conf:
    rate: float
    names: tuple[str, ...]
    inner: Inner
    limit: int | None = None


def test_values_take_their_types() -> None:
    conf = from_mapping(Conf, {"rate": 1, "names": ["a", "b"], "inner": {"depth": 2}}, "am")
    assert conf == Conf(1.0, ("a", "b"), Inner(2), None)
    assert isinstance(conf.rate, float)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"rat": 1, "names": [], "inner": {"depth": 1}}, "unknown key 'rat'; did you mean 'rate'"),
        ({"names": [], "inner": {"depth": 1}}, "the key 'rate' is missing"),
        ({"rate": "fast", "names": [], "inner": {"depth": 1}}, r"am\.rate: expected float, found 'fast'"),
        ({"rate": 1, "names": [], "inner": {"depth": 1.5}}, r"am\.inner\.depth: expected int, found 1\.5"),
        ({"rate": 1, "names": [3], "inner": {"depth": 1}}, r"am\.names\[0\]: expected str, found 3"),
        ({"rate": True, "names": [], "inner": {"depth": 1}}, r"am\.rate: expected float, found True"),
    ],
)
def test_wrong_values_are_refused_by_name(mapping: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        from_mapping(Conf, mapping, "am")


def test_conf_that_is_no_json_object_is_refused() -> None:
    with pytest.raises(RecipeError, match="not JSON"):
        parse_conf(Conf, "{rate: 1")
    with pytest.raises(RecipeError, match="expected a JSON object"):
        parse_conf(Conf, "[1]")


def _tool(body: str, **environment: str) -> subprocess.Popen[str]:
    code = f"import time\nfrom local.cli import RecipeError, run\ndef main():\n    {body}\nrun(main)"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.getcwd()} | environment,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise RecipeError('a.sph: cut short')", "a.sph: cut short"),
        ("open('/dev/full', 'w').write('x' * 100_000)", "No space left on device: make room and start again"),
    ],
    ids=["an error", "a full disk"],
)
def test_an_error_is_one_line_and_exit_code_one(body: str, message: str, root, monkeypatch) -> None:
    monkeypatch.chdir(root)
    tool = _tool(body)
    _, stderr = tool.communicate(timeout=60)
    assert tool.returncode == 1
    assert stderr == f"error: {message}\n"


def test_a_tool_ends_when_its_workflow_is_killed(root, monkeypatch) -> None:
    monkeypatch.chdir(root)
    workflow = subprocess.Popen(["sleep", "600"])
    tool = _tool("time.sleep(600)", **{RUN: f"{socket.gethostname()} {workflow.pid}"})
    elsewhere = _tool("time.sleep(600)", **{RUN: f"another-node {workflow.pid}"})
    try:
        time.sleep(1)
        assert tool.poll() is None
        workflow.kill()
        workflow.wait()
        assert tool.wait(timeout=30) == 1
        assert elsewhere.poll() is None  # it cannot see the process, and Slurm ends it
    finally:
        for process in (tool, elsewhere, workflow):
            process.kill()


def test_a_tool_ends_when_its_steps_slurmstepd_is_killed(root, monkeypatch, tmp_path) -> None:
    """Which leaves its tasks running: nobody would learn how they end."""
    monkeypatch.chdir(root)
    slurmstepd = tmp_path / "slurmstepd"
    shutil.copy(shutil.which("bash"), slurmstepd)
    program = "import os, time; from local import cli; cli.run(lambda: (print(os.getpid(), flush=True), time.sleep(600)))"
    step = subprocess.Popen([slurmstepd, "-c", f'"{sys.executable}" -c "{program}"; :'], stdout=subprocess.PIPE, text=True)
    task = int(step.stdout.readline())
    time.sleep(2)
    os.kill(task, 0)
    step.kill()
    step.wait()
    step.stdout.close()
    until = time.monotonic() + 30
    while Path(f"/proc/{task}").exists():
        assert time.monotonic() < until
        time.sleep(0.1)
