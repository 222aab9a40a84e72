"""The configuration: presets, types from the command line, what is refused; the lock; the two lists of packages."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from snakemake.utils import update_config
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

import adpsgd
from local.adaptation.ivector import IvectorConf
from local.am.model import AmConf
from local.am.train import TrainConf
from local.cli import RecipeError, from_mapping
from local.decode import DecodeConf
from local.features import FeatureConf
from local.graph import GraphConf
from local.hmm.train import LdaConf, SatConf, StageConf, TreeConf, TriphoneConf
from local.lexicon import LexiconConf
from local.workflow import ask_for_jobs_often, cancel_left_jobs, check_corpora, complete, launched, lock
from recipes.swbd.embedded.__main__ import EmbeddedConf
from recipes.swbd.subsets import SubsetConf

SCHEMA = """
type: object
additionalProperties: false
required: [corpus]
properties:
  corpus: {type: string}
  corpora: {type: object}
  gmm:
    type: object
    additionalProperties: false
    required: [leaves]
    properties:
      leaves: {type: integer}
      power: {type: number}
      tri: {type: object, additionalProperties: false, properties: {beam: {type: number}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "conf" / "gmm").mkdir(parents=True)
    (tmp_path / "conf" / "gmm" / "mini.yaml").write_text("leaves: 300\npower: 0.25\ntri: {beam: 10}\n")
    return tmp_path


def test_a_preset_is_filled_in_below_what_the_section_says(folder: Path) -> None:
    config = {"corpus": "x", "gmm": {"preset": "mini", "tri": {"beam": 13}}}
    done = complete(config, folder, folder / "schema.yaml")
    assert done == {"corpus": "x", "gmm": {"leaves": 300, "power": 0.25, "tri": {"beam": 13}}}


def test_strings_from_the_command_line_take_the_schemas_types(folder: Path) -> None:
    config = {"corpus": "7", "gmm": {"leaves": "400", "power": "0.2"}}
    assert complete(config, folder, folder / "schema.yaml") == {"corpus": "7", "gmm": {"leaves": 400, "power": 0.2}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"corpus": "x", "gmn": {}}, "unknown key 'gmn'; did you mean 'gmm'"),
        ({"corpus": "x", "gmm": {"leaves": 1, "leafs": 2}}, "unknown key 'gmm.leafs'; did you mean 'leaves'"),
        ({"corpus": "x", "gmm": {"leaves": 1, "tri": {"baem": 2}}}, "unknown key 'gmm.tri.baem'; did you mean 'beam'"),
        ({"corpus": "x", "gmm": {}}, "the key 'gmm.leaves' is missing"),
        ({"corpus": "x", "gmm": {"leaves": "many"}}, "gmm.leaves: 'many' is not of type 'integer'"),
        ({"corpus": "x", "gmm": {"preset": "minni"}}, "no preset 'minni' in conf/gmm; did you mean 'mini'"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(folder: Path, config: dict, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        complete(config, folder, folder / "schema.yaml")


def test_a_corpus_that_is_not_there_is_named(tmp_path: Path) -> None:
    check_corpora({"corpora": {"swbd1": {"audio": str(tmp_path)}, "fisher": None}})
    with pytest.raises(RecipeError, match=r"corpora\.swbd1\.audio: /no/disc does not exist; set it to where"):
        check_corpora({"corpora": {"swbd1": {"audio": "/no/disc"}}})


def test_a_second_run_is_kept_out_until_the_first_is_gone_even_by_sigkill(root: Path, tmp_path: Path) -> None:
    code = f"import time; from local.workflow import lock; lock({str(tmp_path)!r}); print('held', flush=True)"
    code += "; time.sleep(99)"
    first = subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(RecipeError, match=rf"another run \(process {first.pid} on \S+\) is at work"):
            lock(tmp_path)
    finally:
        first.kill()
        first.wait()
    lock(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match=r"file/mini: .*; set `exp` to a folder that can be written to"):
        lock(tmp_path / "file" / "mini")


def test_processes_are_started_on_one_machine_or_by_srun() -> None:
    assert launched(4, {}) == "torchrun --standalone --nproc-per-node 4 -m"
    cluster = {"mpi": "srun", "nodes": 4, "tasks_per_node": 4, "cpus_per_task": 8}
    assert launched(16, cluster).startswith("srun --nodes 4 --ntasks 16 --cpus-per-task 8 ")
    assert launched(4, {"mpi": "srun", "nodes": 4, "tasks": 4}).startswith("srun --nodes 4 --ntasks 4 --cpus-per-task 1 ")
    with pytest.raises(RecipeError, match="gives 16 tasks on 4 nodes, the configuration 8 processes"):
        launched(8, cluster)


@pytest.mark.parametrize("waits", [True, False])
def test_jobs_are_asked_for_at_least_so_often_and_a_run_that_is_over_waits_for_nothing(waits: bool, monkeypatch) -> None:
    monkeypatch.setattr(RemoteExecutor, "sleep", RemoteExecutor.sleep)
    ask_for_jobs_often(at_least_every_seconds=1)
    executor = SimpleNamespace(wait=waits, next_seconds_between_status_checks=180)
    began = time.monotonic()
    asyncio.run(asyncio.wait_for(RemoteExecutor.sleep(executor), timeout=30))
    assert (time.monotonic() - began >= 1) == waits


def test_jobs_that_a_killed_run_has_left_are_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of Snakemake, of this folder, of this corpus; the real squeue and scancel: tests/slurm."""
    monkeypatch.chdir(tmp_path)
    here = os.getcwd()
    queue = {
        "1": (here, "rule_train_network_wildcards_allreduce", "snakemake exp/swbd/mini/train/allreduce/final.pt"),
        "2": (here, "rule_train_network_wildcards_allreduce", "snakemake exp/swbd/mini2/train/allreduce/final.pt"),
        "3": ("/elsewhere", "rule_train_network_wildcards_allreduce", "snakemake exp/swbd/mini/train/allreduce/final.pt"),
        "4": (here, "", "an interactive job in which snakemake exp/swbd/mini/report is at work"),
    }

    def slurm(*command: str) -> str:
        if command[0] == "squeue":
            return "".join(f"{job}\t{folder}\t{comment}\n" for job, (folder, comment, _) in queue.items())
        if command[0] == "scancel":
            for job in command[1:]:
                del queue[job]
            return ""
        return queue[command[3]][2]

    monkeypatch.setattr("local.workflow._slurm", slurm)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    cancel_left_jobs("exp/swbd/mini")
    assert sorted(queue) == ["2", "3", "4"]
    assert "Slurm jobs 1" in capsys.readouterr().err
    cancel_left_jobs("exp/swbd/mini")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("section", "conf"),
    [
        ("features", FeatureConf),
        ("lexicon", LexiconConf),
        ("graph", GraphConf),
        ("am", AmConf),
        ("train", TrainConf),
        ("data", SubsetConf),
        ("embedded", EmbeddedConf),
        ("gmm.mono", StageConf),
        ("gmm.tri1", TriphoneConf),
        ("gmm.tri2", TriphoneConf),
        ("gmm.tri3", LdaConf),
        ("gmm.tri4", SatConf),
        ("gmm.network", TreeConf),
        ("ivector", IvectorConf),
        ("decode.gmm", DecodeConf),
        ("decode.network", DecodeConf),
    ],
)
def test_the_schema_knows_the_keys_that_the_stages_take(section: str, conf: type, root: Path) -> None:
    schema = yaml.safe_load((root / "recipes/swbd/schema.yaml").read_text())
    for name in section.split("."):
        schema = schema["properties"][name]
    assert set(schema["properties"]) == set(schema["required"]) == {field.name for field in dataclasses.fields(conf)}


def test_the_schema_knows_the_strategies(root: Path) -> None:
    schema = yaml.safe_load((root / "recipes/swbd/schema.yaml").read_text())
    pattern = schema["properties"]["strategies"]["items"]["pattern"]
    assert set(pattern[2:].partition(")")[0].split("|")) == set(adpsgd.STRATEGIES)


def test_a_strategy_with_options_becomes_the_name_of_a_system(root: Path) -> None:
    config = yaml.safe_load((root / "recipes/swbd/config.yaml").read_text())
    config["strategies"] = ["allreduce", {"delay-by-one": {"stale_gradient": True}}, {"dpsgd": {"topology": "full"}}]
    names = complete(config, root, root / "recipes/swbd/schema.yaml")["strategies"]
    assert names == ["allreduce", "delay-by-one,stale_gradient=true", "dpsgd,topology=full"]
    for name in names:
        adpsgd.strategy(name, seed=1)
    with pytest.raises(RecipeError, match="strategies"):
        complete(config | {"strategies": ["gossip"]}, root, root / "recipes/swbd/schema.yaml")


@pytest.mark.parametrize(
    "files", [[], ["recipes/swbd/mini.yaml"], ["tests/configs/digits_ldc.yaml"], ["tests/configs/read_ldc.yaml"]]
)
def test_the_configurations_that_come_along_are_whole(files: list[str], root: Path) -> None:
    config: dict = {}
    for name in ["recipes/swbd/config.yaml", *files]:
        update_config(config, yaml.safe_load((root / name).read_text()))
    done = complete(config, root, root / "recipes/swbd/schema.yaml")
    from_mapping(StageConf, done["gmm"]["mono"], "gmm.mono")
    from_mapping(TriphoneConf, done["gmm"]["tri1"], "gmm.tri1")
    from_mapping(LdaConf, done["gmm"]["tri3"], "gmm.tri3")
    from_mapping(SatConf, done["gmm"]["tri4"], "gmm.tri4")
    from_mapping(IvectorConf, done["ivector"], "ivector")
    from_mapping(TrainConf, done["train"], "train")


def test_conda_and_pip_install_the_same(root: Path) -> None:
    lines = [line for line in (root / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    conda = yaml.safe_load((root / "recipes/swbd/environment.yaml").read_text())
    assert conda["dependencies"][-1]["pip"] == lines


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tri1": {"stops": [9, 35]}}, r"gmm.tri1.stops: expected ascending iterations before the last, 35, found \[9, 35\]"),
        ({"mono": {"stops": [20, 10]}}, r"gmm.mono.stops: expected ascending"),
        ({"tri3": {"mllt": [2, 36]}}, "gmm.tri3.mllt: 36 is beyond the 35 iterations"),
        ({"tri2": {"realign": [40]}}, "gmm.tri2.realign: 40 is beyond"),
        ({"tri1": {"grow_until": 36}}, "gmm.tri1.grow_until: 36 is beyond"),
        ({"tri4": {"fmllr": []}}, r"gmm.tri4.fmllr: \[\] should be non-empty"),
        ({"tri4": {"utterances": 100}}, "gmm.tri4.utterances: expected null: every speaker needs a transform"),
    ],
)
def test_stages_that_cannot_be_trained_as_they_say_are_refused(change: dict, message: str, root: Path) -> None:
    config = yaml.safe_load((root / "recipes/swbd/config.yaml").read_text())
    config["gmm"] |= change
    with pytest.raises(RecipeError, match=message):
        complete(config, root, root / "recipes/swbd/schema.yaml")


def test_features_of_kaldi_that_no_network_sees_are_refused(root: Path) -> None:
    config = yaml.safe_load((root / "recipes/swbd/config.yaml").read_text())
    config |= {"kaldi": {"alignments": None, "fmllr": "somewhere"}, "inputs": ["fbank"]}
    with pytest.raises(RecipeError, match=r"kaldi\.fmllr is given, and inputs does not name fmllr"):
        complete(config, root, root / "recipes/swbd/schema.yaml")
