"""The frame store, the paper's model size, and what training leaves for decoding."""

from __future__ import annotations

import argparse
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

from local.am import scorer
from local.am.egs import FRAMES, NO_TARGET, FrameStore, write_store
from local.am.inputs import Inputs
from local.am.model import AcousticModel, AmConf
from local.am.scorer import NetworkScorer
from local.cli import RecipeError
from local.datadir import DataDir, Recording, Utterance
from local.features import FeatureSet, add_deltas
from local.files import read_archive, write_archive
from tests.hmm.planted import make_language, random_model, small_topology


def _store(lengths: list[int], pdfs: int = 5, dims: int = 4, plain: int = 0, ivector: int = 0, seed: int = 0) -> FrameStore:
    rng = np.random.default_rng(seed)
    targets = rng.integers(pdfs, size=sum(lengths)).astype(np.int32)
    means = np.random.default_rng(9).normal(size=(pdfs, plain + dims))
    features = (means[targets] + 0.3 * rng.normal(size=(len(targets), plain + dims))).astype(np.float16)
    ivectors = rng.normal(size=(2, ivector)).astype(np.float32)
    sides = np.arange(len(lengths)) % 2
    return FrameStore(features, plain, targets, np.cumsum([0, *lengths]), ivectors, sides, pdfs, ["fbank"])


def _save(store: FrameStore, folder: Path) -> Path:
    folder.mkdir()
    for name in ("features", "targets", "bounds", "ivectors", "sides"):
        np.save(folder / f"{name}.npy", getattr(store, name))
    meta = {name: getattr(store, name) for name in ("num_pdfs", "plain", "kinds")}
    (folder / "meta.json").write_text(json.dumps(meta))
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


def test_a_frame_is_its_fmllr_features_its_sides_ivector_and_log_mel_with_deltas() -> None:
    """40 + 100 + 3 x 40: the paper's 260."""
    store = _store([50, 33], dims=40, plain=40, ivector=100)
    inputs, targets = store.batch(np.arange(len(store)))
    assert store.inputs == inputs.shape[2] == 260
    found = inputs[targets != NO_TARGET].numpy()
    np.testing.assert_array_equal(found[:, :40], store.features[:, :40].astype(np.float32))
    np.testing.assert_array_equal(found[:, 40:140], np.repeat(store.ivectors, [50, 33], axis=0))
    whole = [add_deltas(store.features[a:b, 40:].astype(np.float32)) for a, b in ((0, 50), (50, 83))]
    np.testing.assert_allclose(found[:, 140:], np.concatenate(whole), atol=1e-5)


class Parts:
    """A set of two utterances on two sides, its features as the stages leave them."""

    def __init__(self, folder: Path) -> None:
        draw = np.random.default_rng(2)
        self.frames = {"sw02001-A_000000-000040": 40, "sw02001-B_000000-000030": 30}
        sides = [key[:9] for key in self.frames]
        recordings = {
            side: Recording(side, Path("none.sph"), "AB".index(side[-1]), side[:-2], side[-1], 8000) for side in sides
        }
        utterances = {key: Utterance(key, key[:9], key[:9], 0.0, n / 100, ("so",)) for key, n in self.frames.items()}
        self.data = DataDir(recordings, utterances)
        self.data.write(folder / "data")
        for kind, dims in (("mfcc", 13), ("fbank", 40)):
            write_archive(
                folder / f"{kind}.scp", ((k, draw.normal(size=(n, dims)).astype("f")) for k, n in self.frames.items())
            )
            neutral = np.zeros((2, dims + 1))
            neutral[0, -1] = neutral[1, :-1] = 1
            write_archive(folder / f"{kind}_cmvn.scp", ((side, neutral) for side in sides))
        self.ivectors = {side: draw.normal(size=100).astype("f") for side in sides}
        self.transforms = {side: draw.normal(size=(39, 40)).astype("f") for side in sides}
        for name in ("ivectors", "transforms"):
            write_archive(folder / f"{name}.scp", sorted(getattr(self, name).items()))
        model = random_model(make_language(small_topology()), 1, seed=1, dims=39)
        model.save(folder / "model.pt")
        self.arguments = argparse.Namespace(
            feats=folder, model=folder / "model.pt", transforms=folder / "transforms.scp", fmllr=None,
            ivectors=folder / "ivectors.scp",
        )  # fmt: skip
        self.pdf_ids = {key: draw.integers(0, 5, n).astype(np.int32) for key, n in self.frames.items()}


def test_the_store_and_the_decoder_see_the_same(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    inputs = Inputs.of_arguments(parts.arguments, parts.data)
    assert inputs.kinds == ["fmllr", "ivector", "fbank"]
    write_store(inputs, parts.pdf_ids, 5, tmp_path / "egs")
    store = FrameStore.read(tmp_path / "egs")
    assert (store.plain, store.inputs, store.num_pdfs, store.kinds) == (39, 259, 5, inputs.kinds)
    found, targets = store.batch(np.arange(len(store)))
    whole = np.concatenate([inputs.whole(key) for key in parts.frames])
    np.testing.assert_allclose(found[targets != NO_TARGET], whole, rtol=1e-3, atol=2e-2)  # the store's are float16
    np.testing.assert_array_equal(targets[targets != NO_TARGET], np.concatenate(list(parts.pdf_ids.values())))
    key = next(iter(parts.frames))
    unadapted = add_deltas(FeatureSet(tmp_path, "mfcc", parts.data.utt2side)[key])
    w = parts.transforms[key[:9]].astype(float)
    np.testing.assert_allclose(inputs.whole(key)[:, :39], unadapted @ w[:, :-1].T + w[:, -1], rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(inputs.whole(key)[5, 39:139], parts.ivectors[key[:9]])


def test_parts_may_be_left_out_or_come_from_elsewhere(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    given = vars(parts.arguments)
    of_kaldi = given | {"transforms": None, "fmllr": tmp_path / "kaldi.scp"}
    plain = Inputs.of_arguments(argparse.Namespace(**given | {"transforms": None, "ivectors": None}), parts.data)
    assert plain.kinds == ["fbank"]
    key = next(iter(parts.frames))
    assert plain.whole(key).shape == (40, 120)
    features = {key: np.full((n, 40), 2, np.float32) for key, n in parts.frames.items()}
    write_archive(tmp_path / "kaldi.scp", sorted(features.items()))
    brought = Inputs.of_arguments(argparse.Namespace(**of_kaldi), parts.data)
    assert brought.whole(key).shape == (40, 260)
    assert (brought.whole(key)[:, :40] == 2).all()


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    given, key = vars(parts.arguments), next(iter(parts.frames))
    of_kaldi = given | {"transforms": None, "fmllr": tmp_path / "kaldi.scp"}
    inputs = Inputs.of_arguments(parts.arguments, parts.data)
    with pytest.raises(RecipeError, match=f"utterance {key}: 40 frames of features, 41 of alignment"):
        write_store(inputs, parts.pdf_ids | {key: np.zeros(41, np.int32)}, 5, tmp_path / "egs")
    with pytest.raises(RecipeError, match=f"utterance {key}: pdf-id 7 in the alignment, the model has 5"):
        write_store(inputs, parts.pdf_ids | {key: np.full(40, 7, np.int32)}, 5, tmp_path / "egs")
    assert not (tmp_path / "egs").exists()
    for bad, message in ((np.inf, "not all finite"), (np.nan, "not all finite"), (1e6, "within float16")):
        features = {key: np.full((n, 40), bad, np.float32) for key, n in parts.frames.items()}
        write_archive(tmp_path / "kaldi.scp", sorted(features.items()))
        brought = Inputs.of_arguments(argparse.Namespace(**of_kaldi), parts.data)
        with pytest.raises(RecipeError, match=f"utterance {key}: .*{message}"):
            write_store(brought, parts.pdf_ids, 5, tmp_path / "egs")
    features = {key: np.zeros((n, 38 + n // 20), np.float32) for key, n in parts.frames.items()}
    write_archive(tmp_path / "kaldi.scp", sorted(features.items()))
    with pytest.raises(RecipeError, match="79 features a frame, 80 in utterance"):
        write_store(Inputs.of_arguments(argparse.Namespace(**of_kaldi), parts.data), parts.pdf_ids, 5, tmp_path / "egs")
    features = {key: np.zeros((n - 1, 40), np.float32) for key, n in parts.frames.items()}
    write_archive(tmp_path / "kaldi.scp", sorted(features.items()))
    brought = Inputs.of_arguments(argparse.Namespace(**of_kaldi), parts.data)
    with pytest.raises(RecipeError, match=f"utterance {key}: 40 frames of log-mel, 39 of fMLLR features"):
        brought.whole(key)
    write_archive(tmp_path / "kaldi.scp", [("other", features[key])])
    brought = Inputs.of_arguments(argparse.Namespace(**of_kaldi), parts.data)
    with pytest.raises(RecipeError, match=f"utterance {key} has log-mel and no fMLLR features"):
        brought.parts(key)
    with pytest.raises(RecipeError, match=r"2 of 2 utterances are aligned and have not all of \['fmllr', 'ivector', 'fbank'\]"):
        write_store(brought, parts.pdf_ids, 5, tmp_path / "egs")
    write_archive(tmp_path / "ivectors.scp", [("sw02001-A", parts.ivectors["sw02001-A"])])
    with pytest.raises(RecipeError, match=r"1 of the expected keys are missing, the first is sw02001-B"):
        Inputs.of_arguments(parts.arguments, parts.data)
    with pytest.raises(RecipeError, match="--transforms needs --model"):
        Inputs.of_arguments(argparse.Namespace(**given | {"model": None}), parts.data)


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
    network = NetworkScorer.load(tmp_path / strategy / "final.pt")
    assert network.kinds == ["fbank"]
    (scores,) = network([add_deltas(heldout.features[:60].astype(np.float32))])
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


def test_likelihoods_for_kaldis_decoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tmp_path)
    model = AcousticModel(259, 5, AmConf(**AM))
    log_priors = torch.full((5,), 0.2).log()
    content = {"am": AM, "inputs": 259, "pdfs": 5, "kinds": ["fmllr", "ivector", "fbank"], "log_priors": log_priors}
    torch.save(content | {"model": model.state_dict()}, tmp_path / "final.pt")
    options = {"network": tmp_path / "final.pt", "data": tmp_path / "data", "job": 0, "jobs": 1, "out": tmp_path / "out.scp"}
    options |= {name: path for name, path in vars(parts.arguments).items() if path}
    monkeypatch.setattr(
        sys, "argv", ["scorer", *(str(word) for name, value in options.items() for word in (f"--{name}", value))]
    )
    scorer.main()
    likelihoods = read_archive(tmp_path / "out.scp", expected=parts.frames)
    inputs = Inputs.of_arguments(parts.arguments, parts.data)
    for key, frames in parts.frames.items():
        with torch.inference_mode():
            expected = model(torch.from_numpy(inputs.whole(key))[None])[0].log_softmax(1) - log_priors
        assert likelihoods[key].shape == (frames, 5)
        np.testing.assert_allclose(likelihoods[key], expected.numpy(), atol=1e-5)
    monkeypatch.setattr(sys, "argv", [word for word in sys.argv if word not in ("--ivectors", str(parts.arguments.ivectors))])
    with pytest.raises(RecipeError, match=r"a network of inputs \['fmllr', 'ivector', 'fbank'\], found \['fmllr', 'fbank'\]"):
        scorer.main()


def test_a_missing_network_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such network; run the stage 'train'"):
        NetworkScorer.load(tmp_path / "final.pt")
    torch.save({"some": 1}, tmp_path / "final.pt")
    with pytest.raises(RecipeError, match="no network"):
        NetworkScorer.load(tmp_path / "final.pt")
