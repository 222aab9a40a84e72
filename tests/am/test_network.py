"""The frame store, the paper's model size, and what training leaves for decoding."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from local.am.egs import FRAMES, NO_TARGET, FrameStore, paired
from local.am.model import AcousticModel, AmConf
from local.am.scorer import NetworkScorer
from local.cli import RecipeError
from local.features import add_deltas


def _store(lengths: list[int], pdfs: int = 5, dims: int = 4, seed: int = 0) -> FrameStore:
    rng = np.random.default_rng(seed)
    targets = rng.integers(pdfs, size=sum(lengths)).astype(np.int32)
    means = np.random.default_rng(9).normal(size=(pdfs, dims))
    features = (means[targets] + 0.3 * rng.normal(size=(len(targets), dims))).astype(np.float16)
    return FrameStore(features, targets, np.cumsum([0, *lengths]), pdfs)


def _save(store: FrameStore, folder: Path) -> Path:
    folder.mkdir()
    for name in ("features", "targets", "bounds"):
        np.save(folder / f"{name}.npy", getattr(store, name))
    (folder / "meta.json").write_text(json.dumps({"num_pdfs": store.num_pdfs}))
    return folder


@pytest.mark.parametrize("length", [1, 5, 20, 21, 22, 41, 42, 43, 100])
def test_every_frame_is_a_target_once(length: int) -> None:
    store = _store([30, length, 21])
    inputs, targets = store.batch(np.arange(len(store)))
    assert inputs.shape == (len(store), FRAMES, 12)
    assert int((targets != NO_TARGET).sum()) == 51 + length
    assert len(store) == 2 + -(-length // FRAMES) + 1
    counted = torch.bincount(targets[targets != NO_TARGET], minlength=5)
    assert counted.tolist() == np.bincount(store.targets, minlength=5).tolist()


def test_deltas_are_those_of_the_whole_utterance() -> None:
    store = _store([50, 33])
    inputs, targets = store.batch(np.arange(len(store)))
    whole = [add_deltas(store.features[a:b].astype(np.float32)) for a, b in ((0, 50), (50, 83))]
    found = inputs[targets != NO_TARGET].numpy()  # subsequences are in order, so their fresh frames are too
    np.testing.assert_allclose(found, np.concatenate(whole), atol=1e-5)


def test_frame_counts_must_agree() -> None:
    with pytest.raises(RecipeError, match="utterance u: 3 frames of features, 4 of alignment"):
        list(paired({"u": np.zeros((3, 2))}, [("u", np.zeros(4, np.int32))], 5))  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="utterance u: pdf-id 7 in the alignment, the model has 5"):
        list(paired({"u": np.zeros((3, 2))}, [("u", np.full(3, 7, np.int32))], 5))  # type: ignore[arg-type]


def test_the_papers_model_has_its_size() -> None:
    """43.15 M parameters (derived from the paper's shapes)."""
    with torch.device("meta"):
        model = AcousticModel(260, 32_000, AmConf(6, 512, 256, 0.0))
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(43.15, abs=0.005)


AM = {"layers": 1, "cells": 8, "bottleneck": 6, "dropout": 0.0}
TRAIN = {
    "epochs": 3, "batch": 4, "initial_rate": 0.3, "peak_rate": 1.0, "warmup_epochs": 1.0, "momentum": 0.5,
    "weight_decay": 0.0, "clip_norm": 5.0, "seed": 1, "threads": 1, "schedule": "annealed", "micro_batches": 1,
    "precision": "float32", "mix_momentum": False, "checkpoint_minutes": 30, "keep_learners": False, "tensorboard": False,
    "slow": {}, "slow_link": {},
}  # fmt: skip


def _train(root: Path, folder: Path, strategy: str, learners: int, **changes: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(learners)]
    command += ["-m", "local.am.train", "--strategy", strategy, "--egs", str(folder / "egs"), "--heldout", str(folder / "dev")]
    command += ["--am", json.dumps(AM), "--conf", json.dumps(TRAIN | changes), "--out", str(folder / strategy)]
    return subprocess.run(command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True)


@pytest.mark.parametrize("strategy", ["allreduce", "adpsgd-random"])
def test_training_learns_resumes_and_scores(strategy: str, root: Path, tmp_path: Path) -> None:
    _save(_store([60] * 40), tmp_path / "egs")
    heldout = _store([60] * 5, seed=1)
    _save(heldout, tmp_path / "dev")
    done = _train(root, tmp_path, strategy, 2)
    assert done.returncode == 0, done.stderr[-2000:]
    history = [json.loads(line) for line in (tmp_path / strategy / "history.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in history] == [1, 2, 3]
    assert all(sum(line["claimed"]) == line["samples"] == 120 for line in history)
    assert history[-1]["heldout_loss"] < history[0]["heldout_loss"] < np.log(5) + 0.1
    assert history[-1]["heldout_accuracy"] > 0.8
    telemetry = (tmp_path / strategy / "log" / "learner-1.jsonl").read_text().splitlines()
    assert {"loss", "lr", "staleness", "wait_seconds"} <= set(json.loads(telemetry[0]))
    scores = NetworkScorer.load(tmp_path / strategy / "final.pt")(heldout.features[:60].astype(np.float32))
    priors = np.bincount(np.load(tmp_path / "egs" / "targets.npy"), minlength=5) + 1
    posteriors = np.exp(scores) * priors / priors.sum()
    np.testing.assert_allclose(posteriors.sum(1), 1, atol=1e-4)
    assert (scores.argmax(1) == heldout.targets[:60]).mean() > 0.7
    assert not (tmp_path / strategy / "checkpoints").exists()  # a run on other data begins anew


def test_a_signal_saves_a_checkpoint_and_the_next_run_ends_as_an_undisturbed_one(root: Path, tmp_path: Path) -> None:
    """Alone, so that it is the same to the bit; with momentum, dropout, and a checkpoint in the middle of an epoch."""
    _save(_store([60] * 200), tmp_path / "egs")
    _save(_store([60] * 5, seed=1), tmp_path / "dev")
    whole = _train(root, tmp_path, "allreduce", 1, epochs=5)
    assert whole.returncode == 0, whole.stderr[-2000:]
    final = torch.load(tmp_path / "allreduce" / "final.pt", weights_only=True)["model"]
    (tmp_path / "allreduce").rename(tmp_path / "whole")
    command = [sys.executable, "-m", "local.am.train", "--strategy", "allreduce", "--egs", str(tmp_path / "egs")]
    command += ["--heldout", str(tmp_path / "dev"), "--am", json.dumps(AM), "--out", str(tmp_path / "allreduce")]
    command += ["--conf", json.dumps(TRAIN | {"epochs": 5, "slow": {"0": 3.0}})]
    running = subprocess.Popen(command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "allreduce" / "log" / "learner-0.jsonl"
    while not log.exists() or len(log.read_text().splitlines()) < 230:  # in the second epoch of 150 batches each
        time.sleep(0.02)
    running.send_signal(signal.SIGUSR1)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 75, errors
    assert "learner 0 stops with a checkpoint at epoch 1." in errors
    assert [p.name[:16] for p in sorted((tmp_path / "allreduce" / "checkpoints").iterdir())][-1] == "epoch-0001-block"
    other = _train(root, tmp_path, "allreduce", 1, epochs=5, peak_rate=0.5)
    assert other.returncode != 0
    assert "belongs to another configuration (train.peak_rate: 1.0, now 0.5); remove" in other.stderr
    done = _train(root, tmp_path, "allreduce", 1, epochs=5)
    assert done.returncode == 0, done.stderr[-2000:]
    resumed = torch.load(tmp_path / "allreduce" / "final.pt", weights_only=True)["model"]
    for name, value in final.items():
        assert torch.equal(resumed[name], value), name
    losses = [
        [json.loads(line)["train_loss"] for line in (tmp_path / run / "history.jsonl").open()] for run in ("whole", "allreduce")
    ]
    assert losses[0] == losses[1]


def test_bfloat16_micro_batches_and_kept_learners(root: Path, tmp_path: Path) -> None:
    _save(_store([60] * 40), tmp_path / "egs")
    _save(_store([60] * 5, seed=1), tmp_path / "dev")
    options = {"precision": "bfloat16", "micro_batches": 2, "keep_learners": True, "mix_momentum": True, "schedule": "cosine"}
    done = _train(root, tmp_path, "local-sgd,period=4", 2, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    out = tmp_path / "local-sgd,period=4"
    last = json.loads((out / "history.jsonl").read_text().splitlines()[-1])
    assert last["heldout_accuracy"] > 0.8
    models = [torch.load(out / name, weights_only=True)["model"] for name in ("learner-0.pt", "learner-1.pt", "final.pt")]
    for name, average in models[2].items():
        assert average.dtype == torch.float32
        torch.testing.assert_close((models[0][name] + models[1][name]) / 2, average)
    wrong = _train(root, tmp_path, "allreduce", 2, precision="float8")
    assert wrong.returncode != 0
    assert "train.precision: 'float8' is none of float32, bfloat16" in wrong.stderr


def test_a_missing_network_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such network; run the stage 'train'"):
        NetworkScorer.load(tmp_path / "final.pt")
    torch.save({"some": 1}, tmp_path / "final.pt")
    with pytest.raises(RecipeError, match="no network of this recipe"):
        NetworkScorer.load(tmp_path / "final.pt")
