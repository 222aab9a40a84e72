"""The workflow as a user runs it: from nothing to a WER table, killed on the way, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

TINY = """
corpus: mini
corpora:
  swbd1: {audio: exp/swbd/mini/corpus/LDC97S62, transcripts: exp/swbd/mini/corpus/swb_ms98_transcriptions}
  eval2000: {audio: exp/swbd/mini/corpus/LDC2002S09, text: exp/swbd/mini/corpus/LDC2002T43}
embedded: {seed: 3, train_minutes: 4, test_minutes: 1, jobs: 2}
data: {dev_utterances: 20, heldout_hours: 0.004, max_repeats: 300}
gmm:
  preset: mini
  mono: {iterations: 6, realign: [2, 4], gaussians: 200, grow_until: 5}
  tri1: &small {iterations: 4, realign: [3], gaussians: 400, grow_until: 3, leaves: 180}
  tri3: {<<: *small, mllt: [2]}
  tri4: {<<: *small, fmllr: [2], stops: [2]}
  network: {leaves: 200}
gmm_systems: [tri4]
ivector: {preset: mini, gaussians: 16, dims: 4, ubm_iterations: 4, iterations: 2}
am: {layers: 1, cells: 16, bottleneck: 16, dropout: 0.0}
train: {preset: mini, epochs: 2, warmup_epochs: 1}
learners: 2
decode:
  preset: mini
  gmm: &narrow {beam: 9.0, max_active: 500, acoustic_scales: [0.05, 0.1], insertion_penalties: [0.0]}
  network: *narrow
lm: {order: 3, prune: 1.0e-5}
jobs: {feats: 2, gmm: 2, align: 2, decode: 2}
"""


def _snakemake(root: Path, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(root / "Snakefile"), "--directory", str(folder)]
    command += ["--workflow-profile", str(root / "profiles" / "default"), *arguments, "--configfile", str(folder / "tiny.yaml")]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _run(root: Path, folder: Path, *arguments: str) -> tuple[int, str]:
    process = _snakemake(root, folder, *arguments)
    output, _ = process.communicate(timeout=280)
    return process.returncode, output


def working_in(folder: Path) -> dict[int, str]:
    """Processes that work for a run in ``folder``, and their command lines."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(place / "cwd") == str(folder):
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


@pytest.mark.timeout(600)
def test_a_run_that_is_killed_again_and_again_ends_with_a_table(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    for seconds in (9, 14, 19, 24):
        process = _snakemake(root, tmp_path)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        for _ in range(100):
            if not working_in(tmp_path):
                break
            time.sleep(0.1)
        assert working_in(tmp_path) == {}  # no orphan goes on beside the next run
    code, output = _run(root, tmp_path)
    assert code == 0, output[-3000:]
    exp = tmp_path / "exp" / "swbd" / "mini"
    table = (exp / "report" / "wer.txt").read_text()
    assert table.startswith("Synthetic speech")
    for system in ("tri4", "allreduce", "adpsgd-random"):
        scores = json.loads((exp / "score" / system / "eval2000" / "wer.json").read_text())
        assert scores["all"]["N"] == scores["sw"]["N"] + scores["en"]["N"] > 100
        assert re.search(rf"^{system}.* all +{scores['all']['wer']:.1f} ", table, re.MULTILINE)
    assert "<svg" in (exp / "report" / "report.html").read_text()
    assert all((exp / "align" / stage / "page.html").exists() for stage in ("mono", "tri1", "tri3", "tri4"))
    network = torch.load(exp / "train" / "allreduce" / "final.pt", weights_only=True)
    assert (network["kinds"], network["inputs"]) == (["fmllr", "ivector", "fbank"], 40 + 4 + 3 * 40)
    assert not list(exp.rglob("*.tmp"))
    code, output = _run(root, tmp_path, "--dry-run")
    assert code == 0
    assert "Nothing to be done" in output
    # one stage again: what depends on it, and nothing before it
    code, output = _run(root, tmp_path, "score", "--dry-run", "--forcerun", "best_scales")
    assert code == 0
    assert "train_network" not in output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TINY.replace("learners:", "lerners:"), r"config: unknown key 'lerners'; did you mean 'learners'"),
        (TINY.replace("dropout:", "drop_out:"), r"config: unknown key 'am.drop_out'; did you mean 'dropout'"),
        (TINY.replace("cells: 16", "cells: many"), r"config: am.cells: 'many' is not of type 'integer'"),
        (TINY.replace("preset: mini", "preset: minni"), r"no preset 'minni' in conf/\w+; did you mean 'mini'"),
        (
            TINY.replace("embedded: {", "embedded: null\n#"),
            r"swbd1.audio: exp/swbd/mini/corpus/LDC97S62 does not exist",
        ),
    ],
)
def test_a_wrong_configuration_ends_the_run_at_once(text: str, message: str, root: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(text)
    code, output = _run(root, tmp_path)
    assert code != 0
    assert re.search(message, output), output
    assert not (tmp_path / "exp").exists()


def test_a_knob_from_the_command_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    code, output = _run(root, tmp_path, "train", "--dry-run", "--printshellcmds", "--config", "am={cells: 24}")
    assert code == 0, output
    assert '"cells": 24' in output


@pytest.mark.parametrize(
    ("options", "present", "absent"),
    [
        (
            ["inputs=[fbank]", "gmm_systems=[]"],
            {"network_tree", "decoding_graph", "report"},
            {"ivector_extractor", "kaldi_alignment", "likelihoods_of_job"},
        ),
        (
            ["kaldi={alignments: have/ali}", "inputs=[ivector, fbank]"],
            {"kaldi_alignment", "likelihoods_of_job", "ivector_extractor", "train_network"},
            {"network_tree", "decoding_graph", "search_of_job", "report"},
        ),
        (
            ["kaldi={alignments: have/ali, fmllr: [have/fmllr]}", "inputs=[fmllr, fbank]"],
            {"kaldi_alignment", "kaldi_fmllr", "likelihoods_of_job"},
            {"gmm_iterations", "network_tree", "search_of_job", "report"},
        ),
        (
            ["kaldi={fmllr: have/fmllr}", "gmm_systems=[]"],
            {"kaldi_fmllr", "network_tree", "search_of_job", "report"},
            {"kaldi_alignment", "likelihoods_of_job"},
        ),
    ],
)
def test_what_is_brought_along_or_left_out_is_not_made(
    options: list[str], present: set[str], absent: set[str], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    for name in ("ali", "fmllr"):
        (tmp_path / "have" / name).mkdir(parents=True)
    code, output = _run(root, tmp_path, "--dry-run", "--config", *options)
    assert code == 0, output
    planned = set(re.findall(r"^(?:local)?rule (\w+):", output, re.MULTILINE))
    assert present <= planned
    assert not absent & planned


def test_damaged_audio_fails_the_run_with_the_files_name(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    code, output = _run(root, tmp_path, "swbd1")
    assert code == 0, output
    (audio,) = sorted((tmp_path / "exp/swbd/mini/corpus/LDC97S62").rglob("*01.sph"))[:1]
    audio.write_bytes(audio.read_bytes()[:20_000])
    code, output = _run(root, tmp_path, "swbd1", "--forcerun", "swbd1")
    assert code != 0
    assert re.search(r"sw02001\.sph: cut short: the header promises \d+ samples a channel, the data hold \d+", output)
    assert not (tmp_path / "exp/swbd/mini/data/swbd1").exists()
