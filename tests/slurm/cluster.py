"""A real Slurm on this one machine: munged, slurmctld and a slurmd for each of four nodes, each with two (pretended) GPUs.

    python tests/slurm/cluster.py start|stop        # as root, with Debian's slurm-wlm

Jobs read the configuration from /etc/slurm, which must not be another cluster's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

NODES = [f"n{number}" for number in range(1, 5)]
ETC = Path("/etc/slurm")
STATE = Path("/tmp/slurm-of-tests")  # logs, spool folders, what slurmctld remembers
_MARK = "# a cluster of tests\n"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
_PORT = 17000


def missing() -> list[str]:
    """What a cluster cannot be started without."""
    programs = [name for name in _PROGRAMS if not shutil.which(name)]
    return programs if os.getuid() == 0 else ["root", *programs]


def _conf(cpus: int, memory_mb: int) -> str:
    host = socket.gethostname()
    nodes = "".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={_PORT + place} CPUs={cpus} RealMemory={memory_mb} "
        "Gres=gpu:2\n"
        for place, name in enumerate(NODES, 1)
    )
    return f"""{_MARK}ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={_PORT}
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={STATE}/state
SlurmdSpoolDir={STATE}/spool.%n
SlurmctldPidFile={STATE}/slurmctld.pid
SlurmdPidFile={STATE}/slurmd.%n.pid
SlurmctldLogFile={STATE}/slurmctld.log
SlurmdLogFile={STATE}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
MinJobAge=600
SlurmdTimeout=10
KillWait=30
InactiveLimit=0
MpiDefault=none
SchedulerParameters=sched_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}PartitionName=cpu Nodes=ALL Default=YES State=UP PriorityTier=1
PartitionName=gpu Nodes=ALL State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL State=UP PriorityTier=2 PreemptMode=OFF
"""


def start(cpus: int = 2, memory_mb: int = 4000) -> None:
    """Start the daemons and wait until every node is idle.

    :raises RuntimeError: where /etc/slurm is another cluster's, or a node does not come up.
    """
    conf = ETC / "slurm.conf"
    if conf.exists() and not conf.read_text().startswith(_MARK):
        raise RuntimeError(f"{conf} is of another cluster; tests do not touch it")
    stop()
    for folder in (ETC, STATE / "state", *(STATE / f"spool.{name}" for name in NODES)):
        folder.mkdir(parents=True, exist_ok=True)
    conf.write_text(_conf(cpus, memory_mb))
    for number in range(2):
        (STATE / f"gpu{number}").touch()
    (ETC / "gres.conf").write_text(f"Name=gpu File={STATE}/gpu[0-1]\n")
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode:
        run = Path("/run/munge")
        run.mkdir(exist_ok=True)
        shutil.chown(run, "munge", "munge")
        subprocess.run(["runuser", "-u", "munge", "--", "munged"], check=True)
    subprocess.run(["slurmctld"], check=True)
    for name in NODES:
        start_node(name)
    until = time.monotonic() + 60
    while states() != dict.fromkeys(NODES, "idle"):
        if time.monotonic() > until:
            raise RuntimeError(f"not all nodes are idle after 60 s: {states()}; see {STATE}/*.log")
        time.sleep(0.2)


def start_node(name: str) -> None:
    """Start the daemon of a node."""
    subprocess.run(["slurmd", "-N", name], check=True)


def states() -> dict[str, str]:
    """Each node's state, as sinfo says it."""
    done = subprocess.run(["sinfo", "-h", "-N", "-p", "cpu", "-o", "%N %t"], capture_output=True, text=True, check=False)
    return dict(line.split() for line in done.stdout.splitlines())


def pid_of(daemon: str) -> int:
    """The process of ``slurmctld``, or of ``slurmd.n1``."""
    return int((STATE / f"{daemon}.pid").read_text())


def jobs() -> list[str]:
    """Ids of jobs that are not over."""
    return subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, text=True, check=True).stdout.split()


def stop() -> None:
    """End all jobs and daemons; munged stays, as others may use it."""
    if (STATE / "slurmctld.pid").exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["scancel", "-u", "root"], capture_output=True, check=False, timeout=20)
    daemons = ["slurmctld", *(f"slurmd.{name}" for name in NODES)]
    for daemon in daemons:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(pid_of(daemon), signal.SIGTERM)
    until = time.monotonic() + 20
    while any((STATE / f"{daemon}.pid").exists() for daemon in daemons) and time.monotonic() < until:
        time.sleep(0.1)
    if STATE.exists():
        shutil.rmtree(STATE)
    conf = ETC / "slurm.conf"
    if conf.exists() and conf.read_text().startswith(_MARK):
        conf.unlink()
        (ETC / "gres.conf").unlink(missing_ok=True)


@contextlib.contextmanager
def cluster() -> Iterator[None]:
    """A cluster that lasts as long as the context."""
    start()
    try:
        yield
    finally:
        stop()


if __name__ == "__main__":
    {"start": start, "stop": stop}[sys.argv[1]]()
