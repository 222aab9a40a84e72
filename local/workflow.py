"""What the Snakefile needs beside rules: the configuration, read, completed from its presets and checked."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import jsonschema
import yaml
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from local.cli import RUN, RecipeError, nearest

PRESET = "preset"


def complete(config: Mapping[str, Any], root: Path, schema_path: Path) -> dict[str, Any]:
    """Return ``config`` with presets filled in, strings of the command line typed, and all of it checked.

    A section that names a preset, ``gmm: {preset: mini}``, takes what it does not say itself from that file,
    ``conf/gmm/mini.yaml``.
    ``--config am='{cells: 256}'`` reaches us with strings for numbers; the schema says what they are.

    :param root: the folder that holds ``conf/``.
    :raises RecipeError: for an unknown key (the nearest known one is named), a wrong type, an unknown preset.
    """
    schema = yaml.safe_load(schema_path.read_text(encoding="utf-8"))
    full = {name: _with_preset(name, section, root) for name, section in config.items()}
    typed = _typed(full, schema)
    if isinstance(typed.get("strategies"), list):
        typed["strategies"] = [_named(strategy) for strategy in typed["strategies"]]
    for error in jsonschema.Draft202012Validator(schema).iter_errors(typed):
        raise RecipeError(_explain(error))
    _check_stages(typed)
    return typed


def _check_stages(config: Mapping[str, Any]) -> None:
    """Check what the schema cannot say of GMM stages and of what comes from Kaldi.

    :raises RecipeError: naming the key.
    """
    for stage, conf in config.get("gmm", {}).items():
        if not isinstance(conf, Mapping) or "iterations" not in conf:
            continue
        last, stops = conf["iterations"], conf["stops"]
        if stops != sorted(set(stops)) or (stops and stops[-1] >= last):
            raise RecipeError(
                f"config: gmm.{stage}.stops: expected ascending iterations before the last, {last}, found {stops}"
            )
        for key in ("realign", "mllt", "fmllr"):
            if beyond := [iteration for iteration in conf.get(key, ()) if iteration > last]:
                raise RecipeError(f"config: gmm.{stage}.{key}: {beyond[0]} is beyond the {last} iterations")
        if conf["grow_until"] > last:
            raise RecipeError(f"config: gmm.{stage}.grow_until: {conf['grow_until']} is beyond the {last} iterations")
    if any(config.get("gmm", {}).get("tri4", {}).get(key) for key in ("utterances", "of_shortest")):
        raise RecipeError("config: gmm.tri4.utterances: expected null: every speaker needs a transform")
    if config.get("kaldi", {}).get("fmllr") and "fmllr" not in config["inputs"]:
        raise RecipeError("config: kaldi.fmllr is given, and inputs does not name fmllr: set one of the two")


def _named(strategy: Any) -> Any:
    """``{delay-by-one: {stale_gradient: true}}`` as the name of a system: ``delay-by-one,stale_gradient=true``."""
    if not (isinstance(strategy, Mapping) and len(strategy) == 1):
        return strategy
    [(name, options)] = strategy.items()
    if not isinstance(options, Mapping):
        return strategy
    return ",".join(
        [name, *(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in options.items())]
    )


def _with_preset(name: str, section: Any, root: Path) -> Any:
    if not isinstance(section, Mapping) or PRESET not in section:
        return section
    own = dict(section)
    folder = root / "conf" / name
    path = folder / f"{own.pop(PRESET)}.yaml"
    if not path.exists():
        known = [p.stem for p in folder.glob("*.yaml")]
        raise RecipeError(f"config: {name}.{PRESET}: no preset {path.stem!r} in conf/{name}{nearest(path.stem, known)}")
    return _merged(yaml.safe_load(path.read_text(encoding="utf-8")), own)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _typed(value: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        known = schema.get("properties", {})
        rest = schema.get("additionalProperties") or {}
        return {key: _typed(item, known.get(key, rest)) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item, schema.get("items", {})) for item in value]
    types = schema.get("type", "string")
    if isinstance(value, str) and "string" not in ([types] if isinstance(types, str) else types):
        return yaml.safe_load(value)
    return value


def _explain(error: jsonschema.ValidationError) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = next(key for key in error.instance if key not in known)
        return f"config: unknown key {'.'.join(filter(None, (where, unknown)))!r}{nearest(unknown, known)}"
    if error.validator == "required":
        missing = re.findall(r"'(.+?)' is a required", error.message)
        return f"config: the key {'.'.join(filter(None, (where, *missing)))!r} is missing"
    return f"config: {where}: {error.message}"


def check_corpora(config: Mapping[str, Any]) -> None:
    """Check that every path of a corpus exists.

    :raises RecipeError: naming the key, the path and what to set.
    """
    for corpus, paths in config["corpora"].items():
        for key, given in (paths or {}).items():
            for path in paths_of(given):
                if not Path(path).exists():
                    raise RecipeError(
                        f"config: corpora.{corpus}.{key}: {path} does not exist; set it to where your copy of the corpus "
                        "is, in a file of your own (snakemake --configfile my.yaml). What you have not got, leave out: "
                        "python -m recipes.swbd.doctor FOLDERS says what it finds"
                    )


def paths_of(given: str | list[str] | None) -> list[str]:
    """The folders of a corpus: none, one or, where it lies on several discs, a list."""
    return [given] if isinstance(given, str) else given or []


def as_json(section: Any) -> str:
    """A section of the configuration as the one argument that a stage's command line takes."""
    return json.dumps(section, sort_keys=True)


def launched(processes: int, resources: Any) -> str:
    """How the processes of one job are started: by torchrun on one machine, or by srun on the nodes of a cluster's profile.

    :param resources: the rule's. With ``mpi`` there are ``nodes``, and ``tasks_per_node`` or ``tasks``.
    :raises RecipeError: where the tasks are not as many as the processes.
    """
    if not resources.get("mpi"):
        return f"torchrun --standalone --nproc-per-node {processes} -m"
    nodes, on_node = resources.get("nodes") or 1, resources.get("tasks_per_node")
    tasks = nodes * on_node if on_node else resources.get("tasks")
    if tasks != processes:
        raise RecipeError(
            f"the profile gives {tasks} tasks on {nodes} nodes, the configuration {processes} processes; make them equal"
        )
    cpus = resources.get("cpus_per_task") or 1
    return (
        f"{resources['mpi']} --nodes {nodes} --ntasks {tasks} --cpus-per-task {cpus} --distribution block "
        "--kill-on-bad-exit=1 --wait=60 python -m"  # a task whose slurmstepd is gone would be waited for without end
    )


def prepare_environment(root: Path, interconnect: str | None) -> None:
    """Let jobs find this interpreter and the modules below ``root``, and end when this process does.

    :param interconnect: the network interface by which learners of several nodes talk; ``None``: that of the host's name.
    """
    if interconnect:
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interconnect
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ["PYTHONPATH"] = str(root)
    os.environ[RUN] = f"{socket.gethostname()} {os.getpid()}"


def ask_for_jobs_often(at_least_every_seconds: float = 20) -> None:
    """Let the end of a cluster's job be seen soon, and the run end with its last job.

    The Slurm executor asks ever more seldom, down to every three minutes, and when the last job has failed it sleeps as
    long once more: a training that fails after an hour would end the run up to six minutes later.
    """

    async def sleep(executor: RemoteExecutor) -> None:
        until = time.monotonic() + min(executor.next_seconds_between_status_checks, at_least_every_seconds)
        while executor.wait and time.monotonic() < until:
            await asyncio.sleep(0.5)

    RemoteExecutor.sleep = sleep


_held: list[IO[str]] = []  # open as long as the process lives, and so is the lock


def lock(folder: str | Path) -> None:
    """Keep a second run out of ``folder`` until this process ends, however it ends: the kernel frees the lock.

    :raises RecipeError: where another run holds it, or it cannot be written to.
    """
    path = Path(folder) / ".lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise RecipeError(f"{folder}: {error.strerror}; set `exp` to a folder that can be written to") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise RecipeError(
            f"another run (process {file.read().strip()}) is at work in {folder}; wait for it to end, or stop it"
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    _held.append(file)


def cancel_left_jobs(exp: str, patience_seconds: float = 120) -> None:
    """End the Slurm jobs that a killed run has left in the queue: they would go on writing beside this run's.

    :param exp: the folder that a job's script must name; :func:`lock` it first, so that no run at work is meant.
    :raises RecipeError: where they do not end.
    """
    if not shutil.which("squeue"):
        return
    left = [job for job in _jobs_of_snakemake() if f"{exp}/" in _slurm("scontrol", "write", "batch_script", job, "-")]
    if not left:
        return
    print(f"cancelling what a killed run has left: Slurm jobs {', '.join(left)}", file=sys.stderr)
    _slurm("scancel", *left)
    until = time.monotonic() + patience_seconds
    while remaining := sorted(set(left) & set(_jobs_of_snakemake())):
        if time.monotonic() > until:
            raise RecipeError(f"Slurm jobs {', '.join(remaining)} of a killed run do not end; scancel them and start again")
        time.sleep(1)


def _jobs_of_snakemake() -> list[str]:
    """Those of this user with this working directory; Snakemake's comment names the rule."""
    rows = [line.split("\t") for line in _slurm("squeue", "--me", "--noheader", "--format=%i\t%Z\t%k").splitlines()]
    return [job for job, folder, comment in rows if folder == os.getcwd() and comment.startswith("rule_")]


def _slurm(*command: str) -> str:
    """What a Slurm command says; nothing where there is no cluster, or the job is over."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
