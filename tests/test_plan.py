"""What a run is said to need, against what is known of the real thing and of real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import yaml

from local.am.model import AcousticModel, AmConf
from local.cli import RecipeError
from local.plan import check_disk, costs, full_run, parameters, planned, speech_hours, table_of
from local.workflow import complete


@pytest.fixture
def config(root: Path) -> dict[str, Any]:
    given = yaml.safe_load((root / "recipes/swbd/config.yaml").read_text())
    return complete(given, root, root / "recipes/swbd/schema.yaml")


def test_parameters_are_the_networks(config: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = AcousticModel(260, 32000, AmConf(**config["am"]))
    assert parameters(config) == sum(parameter.numel() for parameter in model.parameters())
    assert parameters(config) == pytest.approx(43.15e6, rel=1e-3)  # the paper's network


def test_the_paper_run_takes_the_published_gpu_hours(config: dict[str, Any]) -> None:
    plan = {cost.stage: cost for cost in full_run()}
    assert plan["train: adpsgd-random"].gpu_hours == pytest.approx((146, 253), rel=0.01)
    assert plan["egs"].disk_gb == pytest.approx(118, rel=0.01)  # 720 million frames of 164 bytes
    half = {cost.stage: cost for cost in costs(config, 1000, 8)}
    assert half["train: adpsgd-random"].core_hours == pytest.approx(plan["train: adpsgd-random"].core_hours / 2)
    assert half["align: tri1"].core_hours == pytest.approx(plan["align: tri1"].core_hours)  # of so many utterances alone
    assert half["align: tri4"].core_hours == pytest.approx(plan["align: tri4"].core_hours / 2)
    assert half["decode"] == plan["decode"]


def test_the_table_ends_with_the_sums() -> None:
    head, *rows, last = table_of(full_run())
    for column in (head.index("core hours"), head.index("GB of disk")):
        assert float(last[column]) == pytest.approx(sum(float(row[column]) for row in rows), rel=1e-3)


def test_two_sides_share_a_conversations_time(tmp_path: Path) -> None:
    """A minute of two channels is a minute of speech, a minute of one side half a minute."""
    for name, channels in (("disc1/call.wav", 2), ("disc2/a/side.WAV", 1)):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        soundfile.write(path, np.zeros((60 * 8000, channels)), 8000, format="WAV")
    assert speech_hours(str(tmp_path / "disc1")) == pytest.approx(60 / 3600)
    assert speech_hours([str(tmp_path / "disc1"), str(tmp_path / "disc2")]) == pytest.approx(90 / 3600)


def test_folders_without_audio_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=f"{tmp_path}: no audio"):
        speech_hours([str(tmp_path)])


def test_sets_that_are_made_say_their_hours(config: dict[str, Any], tmp_path: Path) -> None:
    """And their audio files, here on a disc that is no longer there, are not asked."""
    config |= {"exp": str(tmp_path), "corpora": {name: {"audio": "/gone"} for name in ("swbd1", "eval2000")}}
    for name, hours in (("swbd1", 260), ("eval2000", 4)):
        folder = tmp_path / config["corpus"] / "data" / name
        folder.mkdir(parents=True)
        (folder / "stats.json").write_text(json.dumps({"hours": hours}))
    development = config["data"]["dev_utterances"] * 3.1 / 3600
    assert planned(config) == list(costs(config, 260, 4 + development))


def test_a_full_disk_is_told_before_the_run(
    config: dict[str, Any], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there already is not counted again."""
    config["embedded"] = yaml.safe_load((root / "recipes/swbd/mini.yaml").read_text())["embedded"]
    plan = planned(config)
    needed = sum(cost.disk_gb for cost in plan)
    monkeypatch.setattr("shutil.disk_usage", lambda place: type("Usage", (), {"free": 0.9 * needed * 1e9}))
    with pytest.raises(RecipeError, match=r"need about .* GB, .* GB are free; make room"):
        check_disk(config, tmp_path / "exp")
    for cost in sorted(plan, key=lambda cost: cost.disk_gb)[-3:]:
        (tmp_path / "exp" / cost.folder).mkdir(parents=True)
    assert check_disk(config, tmp_path / "exp").startswith("disk: about")
