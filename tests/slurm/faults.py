"""The recipe on a real Slurm of four nodes: to the WER table, and through every fault that a cluster has.

    make slurm                      # as root, with Debian's slurm-wlm; pytest does not find this file by itself: half an hour
    make slurm TESTS="table or lost"

All runs are of ``--profile slurm`` with this cluster's values for the lines that differ from site to site.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import cluster
import pytest
import torch
import yaml
from test_run import TINY, working_in

CONFIG = TINY
for _less, _more in (
    ("epochs: 2, warmup_epochs: 1", "epochs: 120, warmup_epochs: 4"),
    ("learners: 2", "learners: 4"),
    ("{feats: 2, gmm: 2, align: 2, decode: 2}", "{feats: 1, gmm: 2, align: 1, decode: 1}"),
):
    assert _less in CONFIG
    CONFIG = CONFIG.replace(_less, _more)
SITE = {"jobs": 4, "retries": 0, "latency-wait": 10, "slurm-status-command": "squeue", "configfile": "tiny.yaml"}
SITE["slurm-init-seconds-before-status-checks"] = 4  # jobs of seconds
RESOURCES = {"slurm_partition": "cpu", "mem_mb": 900, "runtime": 30}
LARGER = ("gmm_iterations", "network_tree", "ivector_extractor", "decoding_graph")
TRAINING = {"slurm_partition": "gpu", "cpus_per_task": 1, "runtime": 30}
FOUR_NODES = {"nodes": 4, "tasks": 4, "tasks_per_gpu": 0, "gres": "gpu:1"}
TWO_NODES_OF_TWO = {"nodes": 2, "tasks_per_node": 2, "gres": "gpu:2", "mem_mb": 1800}
EXP = "exp/swbd/mini"
MODEL = f"{EXP}/train/allreduce/final.pt"


class Runs:
    """A checkout of its own, and calls of Snakemake in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "snakemake.log"

    def set_profile(self, learners: Mapping[str, object] = FOUR_NODES) -> None:
        """Write the profile as it is, but for this cluster's values and where the learners are."""
        profile = yaml.safe_load((self.folder / "profile.yaml").read_text()) | SITE | {"default-resources": RESOURCES}
        for rule, resources in profile["set-resources"].items():
            resources["mem_mb"] = 1500 if rule in LARGER else 900
            if rule == "train_network":
                del resources["tasks_per_node"]
                resources |= TRAINING | learners
        (self.folder / "slurm" / "config.yaml").write_text(yaml.safe_dump(profile))

    def start(self, *targets: str, options: Sequence[str] = (), inside: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start Snakemake, ``inside`` a command of Slurm's if need be; its output goes to ``log``."""
        command = [
            *inside,
            sys.executable,
            "-m",
            "snakemake",
            "--profile",
            "slurm",
            *targets,
            *options,
        ]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with open(self.log, "wb") as log:
            return subprocess.Popen(command, cwd=self.folder, env=environ, stdout=log, stderr=log)

    def run(self, *targets: str, options: Sequence[str] = (), inside: Sequence[str] = ()) -> tuple[int, str]:
        """Run Snakemake to its end; return its exit code and output."""
        code = self.start(*targets, options=options, inside=inside).wait(timeout=1500)
        return code, self.log.read_text()

    def model(self) -> dict[str, torch.Tensor]:
        """The weights of the network trained by allreduce."""
        return torch.load(self.folder / MODEL, weights_only=True)["model"]

    def forget_training(self) -> None:
        """Remove the network and its checkpoints."""
        shutil.rmtree(self.folder / EXP / "train" / "allreduce")

    def wait_for_training(self) -> str:
        """Wait until the learners have written a checkpoint; return the job's id."""
        job = self.wait_for_job("train_network")
        _wait(lambda: any((self.folder / EXP / "train/allreduce/checkpoints").glob("*")), "a checkpoint", 120)
        time.sleep(2)
        return job

    def wait_for_job(self, rule: str) -> str:
        """Wait until a job of a rule runs; return its id."""

        def running() -> str:
            command = ["squeue", "-h", "-t", "R", "-o", "%i\t%k"]
            rows = [line.split("\t") for line in _output(command).splitlines()]
            return next((job for job, comment in rows if comment.startswith(f"rule_{rule}")), "")

        return _wait(running, f"a job of {rule}", 240)

    def learners(self) -> list[int]:
        """The learners' processes, by rank."""
        found = {}
        for pid, command in working_in(self.folder).items():
            with contextlib.suppress(OSError):
                environ = dict(item.partition(b"=")[::2] for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
                if "local.am.train" in command and b"SLURM_PROCID" in environ:
                    found[int(environ[b"SLURM_PROCID"])] = pid
        return [found[rank] for rank in sorted(found)]

    def assert_nothing_is_left(self) -> None:
        """No job in the queue and no process on any node."""
        _wait(lambda: not cluster.jobs() and not working_in(self.folder), "the last process to end", 60)


def _wait(condition: Callable[[], object], what: str, seconds: float) -> object:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.2)
    return found


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module", autouse=True)
def slurm(absent: Callable[[str], NoReturn]) -> Iterator[None]:
    if lacking := cluster.missing():
        absent(f"no cluster without {', '.join(lacking)} (Debian: apt-get install slurm-wlm)")
    with cluster.cluster():
        yield


@pytest.fixture(scope="module")
def runs(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("checkout").resolve()
    for name in ("Snakefile", "adpsgd", "conf", "local", "profiles", "recipes", "slurm"):
        (shutil.copytree if (root / name).is_dir() else shutil.copy)(root / name, folder / name)
    (folder / "tiny.yaml").write_text(CONFIG)
    shutil.copy(root / "slurm" / "config.yaml", folder / "profile.yaml")
    runs = Runs(folder)
    runs.set_profile()
    return runs


@pytest.fixture(scope="module")
def undisturbed(runs: Runs) -> dict[str, torch.Tensor]:
    """The whole run, and the network that comes of it."""
    code, output = runs.run("all", MODEL)
    assert code == 0, output[-3000:]
    return runs.model()


@pytest.fixture
def training(runs: Runs, undisturbed: dict[str, torch.Tensor]) -> Iterator[Runs]:
    """A run that is to train again. Afterwards nothing is at work, and the network is the undisturbed run's."""
    runs.forget_training()
    yield runs
    runs.assert_nothing_is_left()
    code, output = runs.run(MODEL)
    assert code == 0, output[-3000:]
    assert all(torch.equal(value, undisturbed[name]) for name, value in runs.model().items())


def _fails(process: subprocess.Popen[bytes], runs: Runs, *messages: str, seconds: float = 60) -> None:
    """Within a minute, with messages."""
    assert process.wait(timeout=seconds) != 0
    output = runs.log.read_text()
    for message in messages:
        assert message in output, output[-3000:]


def test_the_embedded_corpus_to_the_wer_table(runs: Runs, undisturbed: dict[str, torch.Tensor]) -> None:
    table = (runs.folder / EXP / "report" / "wer.txt").read_text()
    assert "allreduce" in table
    assert "adpsgd-random" in table
    log = (runs.folder / EXP / "log/train/allreduce.log").read_text()
    assert "100%" in log
    logs = list((runs.folder / ".snakemake/slurm_logs").rglob("*.log"))
    assert len(logs) > 30  # each job's own, kept
    code, output = runs.run("all", options=["--report", "report.html"])
    assert code == 0, output[-3000:]
    assert "WorkflowError" not in output
    assert "train_network" in (runs.folder / "report.html").read_text()
    runs.assert_nothing_is_left()


def test_what_is_to_be_done_again(runs: Runs, undisturbed: dict[str, torch.Tensor]) -> None:
    """Nothing; after one corpus has changed, what depends on it."""
    code, output = runs.run("all", options=["-n"])
    assert code == 0
    assert "Nothing to be done" in output
    place = runs.folder / EXP / "corpus/LDC2002T43/.snakemake_timestamp"  # by which the age of a folder goes
    before = place.stat()
    place.touch()
    code, output = runs.run("all", options=["-n"])
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert code == 0
    rules = set(re.findall(r"^(?:local)?rule (\w+):$", output, re.MULTILINE))
    assert {"eval2000", "scores", "report"} <= rules
    assert not rules & {"swbd1", "gmm_iterations", "train_network"}


def test_the_learners_of_four_nodes(runs: Runs, undisturbed: dict[str, torch.Tensor]) -> None:
    """On as many nodes as learners."""
    runs.forget_training()
    process = runs.start(MODEL)
    job = runs.wait_for_training()
    assert "n[1-4]" in _output(["squeue", "-h", "-j", job, "-o", "%N"])
    assert len(runs.learners()) == 4
    assert process.wait(timeout=240) == 0
    assert all(torch.equal(value, undisturbed[name]) for name, value in runs.model().items())


def test_every_strategy_on_two_nodes_of_two(runs: Runs, undisturbed: dict[str, torch.Tensor]) -> None:
    """By itself, hierarchical makes each node one super-learner."""
    names = ["dpsgd", "adpsgd-fixed", "delay-by-one", "hierarchical", "local-sgd"]
    runs.set_profile(TWO_NODES_OF_TWO)
    config = [f"strategies=[{', '.join(names)}]", "train={preset: mini, epochs: 2, warmup_epochs: 1}"]
    code, output = runs.run("train", options=["--config", *config])
    runs.set_profile()
    assert code == 0, output[-3000:]
    for name in names:
        lines = (runs.folder / EXP / "train" / name / "history.jsonl").read_text().splitlines()
        history = [json.loads(line) for line in lines]
        assert len(history[-1]["claimed"]) == 4
        assert history[-1]["heldout_loss"] < history[0]["heldout_loss"]


def test_snakemake_in_a_job_of_its_own(runs: Runs, undisturbed: dict[str, torch.Tensor]) -> None:
    """As in an interactive job, or in tmux on a compute node."""
    runs.forget_training()
    code, output = runs.run(MODEL, inside=["srun", "-n1", "--mem=900"])
    assert code == 0, output[-3000:]
    assert all(torch.equal(value, undisturbed[name]) for name, value in runs.model().items())


def test_a_learner_is_killed(training: Runs) -> None:
    process = training.start(MODEL)
    training.wait_for_training()
    os.kill(training.learners()[2], signal.SIGKILL)
    _fails(process, training, "learner", "Error in rule train_network")


def test_a_nodes_step_is_killed(training: Runs) -> None:
    process = training.start(MODEL)
    job = training.wait_for_training()
    steps = _output(["pgrep", "-f", rf"slurmstepd: \[{job}\.0\]"]).split()
    os.kill(int(steps[-1]), signal.SIGKILL)
    _fails(process, training, "learner", "Error in rule train_network", seconds=180)  # srun waits for the lost task first


def test_a_node_is_lost(training: Runs) -> None:
    """The other learners end the job, or Slurm puts it back in the queue, whichever notices first."""
    process = training.start(MODEL, options=["--retries", "1"])
    job = training.wait_for_training()
    place = training.learners()[3]
    steps = [int(pid) for pid in _output(["pgrep", "-f", rf"slurmstepd: \[{job}\."]).split()]
    parent = int(Path(f"/proc/{place}/stat").read_text().split()[3])
    os.kill(cluster.pid_of("slurmd.n4"), signal.SIGKILL)
    for pid in {parent, place} & {*steps, place}:
        os.kill(pid, signal.SIGKILL)
    time.sleep(20)
    cluster.start_node("n4")
    assert process.wait(timeout=300) == 0, training.log.read_text()[-3000:]


def test_snakemake_is_killed(training: Runs) -> None:
    """Its job stays in the queue. The same command ends it and goes on from its checkpoint."""
    process = training.start(MODEL)
    job = training.wait_for_training()
    process.kill()
    process.wait()
    assert job in cluster.jobs()
    code, output = training.run(MODEL)
    assert code == 0, output[-3000:]
    assert f"cancelling what a killed run has left: Slurm jobs {job}" in output


def test_walltime_ends(training: Runs) -> None:
    """The learners are told ahead, write a checkpoint and end; the job is submitted again."""
    process = training.start(MODEL, options=["--retries", "1"])
    job = training.wait_for_training()
    subprocess.run(["scancel", "--signal=USR1", job], check=True)
    assert process.wait(timeout=240) == 0, training.log.read_text()[-3000:]
    assert "stops with a checkpoint" in "".join(
        path.read_text() for path in (training.folder / ".snakemake/slurm_logs").rglob(f"{job}.log")
    )


def test_another_job_goes_before(training: Runs) -> None:
    """The job is put back in the queue and goes on when the other is over."""
    process = training.start(MODEL)
    job = training.wait_for_training()
    subprocess.run(["sbatch", "-p", "urgent", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 5"], check=True)
    _wait(lambda: "PD" in _output(["squeue", "-h", "-j", job, "-o", "%t"]), "the job to wait", 60)
    assert process.wait(timeout=240) == 0, training.log.read_text()[-3000:]


STAGES = {
    "features_of_job": ("feats/train", "feats"),
    "gmm_iterations": ("align/tri4", "align"),
    "ivectors_of_job": ("ivectors/eval2000", "ivectors"),
    "egs_of_set": ("egs/train", "egs"),
    "decoding_graph": ("graph", f"{EXP}/graph/network/HCLG.fst"),
    "search_of_job": ("decode/allreduce", "decode"),
    "scores": ("score", "score"),
}


@pytest.mark.parametrize("rule", STAGES)
def test_a_stage_is_cancelled(rule: str, runs: Runs, undisturbed: dict[str, torch.Tensor]) -> None:
    folder, target = STAGES[rule]
    shutil.rmtree(runs.folder / EXP / folder)
    process = runs.start(target)
    subprocess.run(["scancel", runs.wait_for_job(rule)], check=True)
    _fails(process, runs, f"Error in rule {rule}", "CANCELLED")
    runs.assert_nothing_is_left()
    code, output = runs.run(target)
    assert code == 0, output[-3000:]


@contextlib.contextmanager
def _mounted(place: Path, *options: str) -> Iterator[None]:
    subprocess.run(["mount", *options, str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_the_disk_is_full(runs: Runs, undisturbed: dict[str, torch.Tensor]) -> None:
    place = runs.folder / EXP / "feats"
    shutil.rmtree(place)
    place.mkdir()
    with _mounted(place, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        code, output = runs.run("feats")
        assert code != 0
        assert "No space left on device: make room and start again" in output, output[-3000:]
        assert not list(place.glob("*/*/mfcc.scp"))  # nothing half made
    runs.assert_nothing_is_left()
    code, output = runs.run("feats")
    assert code == 0, output[-3000:]


def test_the_output_folder_is_read_only(runs: Runs, undisturbed: dict[str, torch.Tensor]) -> None:
    place = runs.folder / EXP
    (place / "score/significance.eval2000.txt").unlink()
    with _mounted(place, "--bind", str(place)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        code, output = runs.run("score")
    assert code != 0
    assert "Read-only file system; set `exp` to a folder that can be written to" in output, output[-3000:]
    code, output = runs.run("score")
    assert code == 0, output[-3000:]


def test_a_rule_that_fails_ends_the_run(runs: Runs, undisturbed: dict[str, torch.Tensor]) -> None:
    """Within a minute, with the rule's message, its log's path and the job's own log."""
    place = runs.folder / EXP / "egs/train/meta.json"
    content = place.read_text()
    runs.forget_training()
    place.write_text("{}")
    began = time.monotonic()
    code, output = runs.run(MODEL)
    assert code != 0
    assert time.monotonic() - began < 60
    assert "Error in rule train_network" in output
    assert f"{EXP}/log/train/allreduce.log" in output
    assert "slurm_logs" in output
    place.write_text(content)
    code, output = runs.run(MODEL)
    assert code == 0, output[-3000:]
