"""Samples a second of every strategy beside computing alone, torch DDP, PyTorch's post-local SGD and Decent-DP.

    python -m benchmarks.strategies --model small --learners 2
    python -m benchmarks.strategies --model small --learners 4 --straggler 5
    python -m benchmarks.strategies --model small --learners 2 --link-mbit 200       # root: network namespaces

All systems run in turn in the same processes, each learner with one thread, so that a busy machine is busy for all. Models:
``small`` (1.0 M parameters, 32 subsequences a step), ``paper`` (43.15 M, 4 subsequences), and ``device``, the small model whose
gradient "is computed" by a sleep of 50 ms, as on an accelerator of its own: there every core is free for the exchanges.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import adpsgd
from local.am.model import AcousticModel, AmConf

OURS = ["allreduce", "local-sgd", "dpsgd", "delay-by-one", "delay-by-one,stale_gradient=true", "hierarchical,group_size=2"]
OURS += ["adpsgd-fixed", "adpsgd-random", "adpsgd,topology=matching"]
OTHERS = ["compute only", "torch DDP", "torch post-local SGD", "decent-dp ring"]
FRAMES = 21
PERIOD = 8  # of both local SGDs
DEVICE_SECONDS = 0.05


class Device(nn.Module):
    """The small model's size, and a gradient that takes its time without the processor."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.zeros(131_072)) for _ in range(8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(DEVICE_SECONDS)
        return torch.stack([part.sum() for part in self.parts]).sum()


class Task:
    """A model, its data and the time its gradient takes."""

    def __init__(self, name: str, slow: float) -> None:
        torch.manual_seed(1)
        self.inputs, self.states = (260, 32_000) if name == "paper" else (120, 500)
        self.batch = 4 if name == "paper" else 32
        conf = AmConf(6, 512, 256, 0.0) if name == "paper" else AmConf(2, 160, 64, 0.0)
        self.on_device = name == "device"
        self.make = Device if self.on_device else lambda: AcousticModel(self.inputs, self.states, conf)
        self.slow = slow
        self.x = torch.randn(self.batch, FRAMES, self.inputs)
        self.y = torch.randint(self.states, (self.batch * FRAMES,))

    def loss(self, model: nn.Module) -> torch.Tensor:
        if self.on_device:
            return model(self.x)
        return functional.cross_entropy(model(self.x).flatten(0, 1), self.y)

    def drag(self, began: float) -> None:
        """Sleep as a slow learner would still compute."""
        time.sleep((self.slow - 1) * (time.perf_counter() - began))


def sgd(parameters: Iterator[nn.Parameter] | list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def run_ours(text: str, task: Task, world: adpsgd.World) -> Callable[[float], int]:
    model = task.make()
    slow = {world.rank: task.slow}
    learner = adpsgd.Learner(model, sgd, adpsgd.strategy(text, 1), world, clip_norm=10.0, slow=slow)

    def go(seconds: float) -> int:
        samples = 0
        for batch in learner.work(task.batch * 10_000, task.batch, seed=1, pause_seconds=seconds):
            learner.backward(task.loss(model), len(batch))
            learner.step()
            samples += len(batch)
        return samples

    return go


def run_other(name: str, task: Task, world: adpsgd.World, turn: str) -> Callable[[float], int]:
    model: nn.Module = task.make()
    apart = 1
    after: Callable[[], None] = lambda: None  # noqa: E731
    optimizer: torch.optim.Optimizer | None = None
    if name == "decent-dp ring":
        from decent_dp.ddp import DecentralizedDataParallel

        model = DecentralizedDataParallel(model, lambda named: sgd([p for _, p in named]), topology="ring", _local_world_size=1)
        model.train()
        apart = world.size
    else:
        if name == "torch DDP":
            model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = sgd(model.parameters())
        if name == "torch post-local SGD":
            from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

            averager = PeriodicModelAverager(period=PERIOD, warmup_steps=0)
            after = lambda: averager.average_parameters(model.parameters())  # noqa: E731
            apart = PERIOD
    pieces = 0

    def go(seconds: float) -> int:
        nonlocal pieces
        pieces += 1
        key, steps, end = f"{turn}/{pieces}", 0, None
        until = time.monotonic() + seconds
        while end is None or steps < end:
            began = time.perf_counter()
            if optimizer is not None:
                optimizer.zero_grad()
            task.loss(model).backward()
            if optimizer is not None:
                nn.utils.clip_grad_norm_(model.parameters(), 10.0, foreach=True)
            task.drag(began)
            if optimizer is not None:
                optimizer.step()
            after()
            steps += 1
            if name == "compute only":
                if time.monotonic() > until:
                    break
                continue
            if world.rank == 0 and end is None and time.monotonic() > until:
                end = -(-(steps + apart + 1) // apart) * apart
                world.store.set(key, str(end))
            elif end is None and world.store.check([key]):
                end = int(world.store.get(key))
        return steps * task.batch

    return go


def worker(model: str, straggler: float, seconds: float, rounds: int, systems: list[str]) -> None:
    """One learner: every system in turn; learner 0 writes a JSON line for each."""
    torch.set_num_threads(1)
    with adpsgd.World.join() as world:
        task = Task(model, straggler if world.rank == 0 else 1.0)
        for number in range(rounds):
            for system in systems:
                ours = system not in OTHERS
                go = run_ours(system, task, world) if ours else run_other(system, task, world, f"{number}/{system}")
                go(seconds / 5)
                world.barrier()
                cpu, began = time.process_time(), time.perf_counter()
                samples = go(seconds)
                elapsed = time.perf_counter() - began
                rate = torch.tensor([samples / elapsed, time.process_time() - cpu, samples], dtype=torch.float64)
                world.all_reduce(rate)
                if world.rank == 0:
                    print(json.dumps({"system": system, "rate": float(rate[0]), "cpu": float(rate[1] / rate[2])}), flush=True)
                world.barrier()
                del go


@contextlib.contextmanager
def namespaces(learners: int, megabit: float) -> Iterator[list[list[str]]]:
    """A network namespace a learner on one bridge, each with a token bucket on its way out; needs root."""

    def sh(command: str) -> None:
        subprocess.run(command.split(), check=True)

    names = [f"adpsgd{rank}" for rank in range(learners)]
    sh("ip link add adpsgd-br type bridge")
    sh("ip link set adpsgd-br up")
    try:
        for rank, name in enumerate(names):
            sh(f"ip netns add {name}")
            sh(f"ip link add adpsgd-v{rank} type veth peer name eth0 netns {name}")
            sh(f"ip link set adpsgd-v{rank} master adpsgd-br up")
            sh(f"ip -n {name} addr add 10.77.0.{rank + 1}/24 dev eth0")
            sh(f"ip -n {name} link set eth0 up")
            sh(f"ip -n {name} link set lo up")
            sh(f"tc -n {name} qdisc add dev eth0 root tbf rate {megabit}mbit burst 256kb latency 100ms")
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name])
        subprocess.run(["ip", "link", "del", "adpsgd-br"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["small", "paper", "device"], default="small")
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--straggler", type=float, default=1.0, help="learner 0 computes so many times more slowly")
    parser.add_argument("--link-mbit", type=float, help="limit every learner's link, in namespaces of their own")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(**json.loads(arguments.worker))
        return
    systems = [*OTHERS, *(text for text in OURS if arguments.learners > 2 or not text.startswith("hierarchical"))]
    try:
        import decent_dp  # noqa: F401
    except ImportError:
        systems.remove("decent-dp ring")
        print("decent-dp is not installed: left out")
    settings = {
        "model": arguments.model,
        "straggler": arguments.straggler,
        "seconds": arguments.seconds,
        "rounds": arguments.rounds,
        "systems": systems,
    }
    places = contextlib.nullcontext([[]] * arguments.learners)
    environment = os.environ | {"WORLD_SIZE": str(arguments.learners), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
    environment |= {"OMP_NUM_THREADS": "1"}
    if arguments.link_mbit:
        if os.geteuid() != 0:
            sys.exit("error: namespaces with a limited link need root; run without --link-mbit")
        places = namespaces(arguments.learners, arguments.link_mbit)  # type: ignore[assignment]
        environment |= {"MASTER_ADDR": "10.77.0.1", "GLOO_SOCKET_IFNAME": "eth0"}
    command = [sys.executable, "-m", "benchmarks.strategies", "--worker", json.dumps(settings)]
    results: dict[str, list[dict[str, float]]] = {system: [] for system in systems}
    with places as prefixes:
        processes = [
            subprocess.Popen([*prefix, *command], env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
            for rank, prefix in enumerate(prefixes)
        ]
        assert processes[0].stdout is not None
        for line in processes[0].stdout:
            found = json.loads(line)
            results[found["system"]].append(found)
        for process in processes:
            if process.wait():
                sys.exit(f"error: a learner has ended with {process.returncode}")
    link = f", links of {arguments.link_mbit:g} Mbit/s" if arguments.link_mbit else ""
    slow = f", one {arguments.straggler:g}x slow" if arguments.straggler > 1 else ""
    print(f"\n{arguments.model}, {arguments.learners} learners{slow}{link}")
    print(f"median of {arguments.rounds} rounds of {arguments.seconds:g} s\n")
    print("| system | samples/s | of computing alone | CPU ms a sample |\n|---|---|---|---|")
    alone = statistics.median(found["rate"] for found in results["compute only"])
    for system, rows in results.items():
        rate, cpu = (statistics.median(row[key] for row in rows) for key in ("rate", "cpu"))
        print(f"| {system} | {rate:.1f} | {rate / alone:.2f} | {1000 * cpu:.2f} |")


if __name__ == "__main__":
    main()
