"""What srun tells its tasks, in torchrun's words. A real step of real nodes: tests/slurm."""

from __future__ import annotations

import pytest

from adpsgd import AdpsgdError, slurm

TASK = {
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_NODEID": "3",
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "gpu[003-004,011,20]",
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_ID": "2",
}


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("4", [4]), ("2(x3)", [2, 2, 2]), ("2(x3),1", [2, 2, 2, 1]), ("1,8(x2),4", [1, 8, 8, 4])],
)
def test_tasks_of_nodes(text: str, tasks: list[int]) -> None:
    assert slurm.tasks_of_nodes(text) == tasks


def test_a_task_knows_its_rank_its_node_and_the_way_to_the_first(monkeypatch) -> None:
    answers = {
        ("show", "hostnames", "gpu[003-004,011,20]"): "gpu003\ngpu004\ngpu011\ngpu20\n",
        ("show", "node", "--oneliner", "gpu003"): "NodeName=gpu003 Arch=x86_64 NodeAddr=10.0.0.3 NodeHostName=gpu003 Port=6818",
    }
    monkeypatch.setattr(slurm, "_scontrol", lambda *arguments: answers[arguments])
    found = slurm.variables(TASK)
    port = int(found.pop("MASTER_PORT"))
    assert found == {
        "RANK": "6",
        "WORLD_SIZE": "7",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "10.0.0.3",
    }
    assert 1024 < port < 32768  # Linux gives out ports from 32768 on by itself
    assert int(slurm.variables(TASK | {"SLURM_STEP_ID": "3"})["MASTER_PORT"]) != port
    assert int(slurm.variables(TASK | {"SLURM_JOB_ID": "123457"})["MASTER_PORT"]) != port


@pytest.mark.parametrize(
    "environ",
    [{}, {"SLURM_JOB_ID": "1"}, TASK | {"SLURM_STEP_NUM_TASKS": "1"}, TASK | {"RANK": "0"}],
    ids=["no Slurm", "a batch script", "one task", "torchrun in a job"],
)
def test_others_are_left_alone(environ: dict[str, str]) -> None:
    assert slurm.variables(environ) == {}


def test_a_node_that_slurm_does_not_show(monkeypatch) -> None:
    monkeypatch.setattr(slurm, "_scontrol", lambda *arguments: "gpu003\n")
    with pytest.raises(AdpsgdError, match="no NodeAddr of node gpu003"):
        slurm.variables(TASK)
