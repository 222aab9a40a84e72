"""The learners of a job step, as srun starts them: what torchrun would have told them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from adpsgd.errors import AdpsgdError

_FIRST_PORT, _PORTS = 20_000, 12_000  # below those that Linux gives out itself


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT of a task of srun; else nothing.

    Learner 0 keeps the store. Its address is that by which Slurm itself knows the step's first node; the port comes from
    the ids of job and step, so that it is the same everywhere and seldom another job's.

    :raises AdpsgdError: where Slurm does not know the node.
    """
    if "RANK" in environ or int(environ.get("SLURM_STEP_NUM_TASKS", "1")) == 1:
        return {}
    on_node = tasks_of_nodes(environ["SLURM_STEP_TASKS_PER_NODE"])[int(environ["SLURM_NODEID"])]
    step = int(environ["SLURM_STEP_ID"])
    return {
        "RANK": environ["SLURM_PROCID"],
        "WORLD_SIZE": environ["SLURM_STEP_NUM_TASKS"],
        "LOCAL_RANK": environ["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(on_node),
        "MASTER_ADDR": _address_of_first(environ["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": str(_FIRST_PORT + (7 * int(environ["SLURM_JOB_ID"]) + step) % _PORTS),
    }


def tasks_of_nodes(text: str) -> list[int]:
    """``2(x3),1`` as ``[2, 2, 2, 1]``."""
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(tasks) for tasks, times in found for _ in range(int(times or 1))]


def _address_of_first(nodes: str) -> str:
    first = _scontrol("show", "hostnames", nodes).split()[0]
    shown = re.search(r"\bNodeAddr=(\S+)", _scontrol("show", "node", "--oneliner", first))
    if shown is None:
        raise AdpsgdError(f"scontrol shows no NodeAddr of node {first}; set MASTER_ADDR, RANK and WORLD_SIZE yourself")
    return shown[1]


def _scontrol(*arguments: str) -> str:
    done = subprocess.run(["scontrol", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AdpsgdError(f"scontrol {' '.join(arguments)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
