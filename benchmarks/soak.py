"""Eight learners with random delays in computation and mixing, for ten minutes: no deadlock, memory flat.

    make soak

Prints a line every half minute: epochs of work, rounds, resident memory of all learners. Ends with an error where the
memory has grown by more than a tenth after the first minute, or a sample was not used exactly once.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import adpsgd
from adpsgd.asynchronous import Adpsgd
from adpsgd.topology import TOPOLOGIES


class Delayed(Adpsgd):
    """Takes a random time between an exchange and its outcome."""

    def _mixed(self, arrivals: list[Tensor]) -> Tensor:
        time.sleep(random.expovariate(100))
        return super()._mixed(arrivals)


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def learner(minutes: float, topology: str) -> None:
    torch.set_num_threads(1)
    samples, batch_size = 4000, 4
    with adpsgd.World.join() as world:
        random.seed(world.rank)
        model = nn.Linear(100_000, 1)
        mixing = Delayed(TOPOLOGIES[topology], seed=1)
        training = adpsgd.Learner(model, lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), mixing, world)
        began, told, first = time.monotonic(), 0.0, 0.0
        go_on = True
        while go_on:
            for batch in training.work(samples, batch_size, seed=1, pause_seconds=random.uniform(0.5, 10)):
                time.sleep(random.expovariate(100 / (1 + world.rank % 3)))
                training.backward(model.weight.square().mean() + model.bias.sum(), len(batch))
                training.step()
            if training.position == training.epoch:
                _, counts = training.tally()
                if sum(counts) != samples:
                    raise adpsgd.AdpsgdError(f"epoch {training.epoch} used {sum(counts)} samples, expected {samples}")
            status = torch.tensor([resident_megabytes(), float(time.monotonic() - began < 60 * minutes)])
            world.all_reduce(status)
            memory, going = status.tolist()
            go_on = going == world.size
            passed = time.monotonic() - began
            if passed > 60 and not first:
                first = memory
            if world.rank == 0 and (passed - told > 30 or not go_on):
                told = passed
                print(f"{passed:5.0f} s: epoch {training.position:.2f}, round {mixing.rounds}, {memory:.0f} MB", flush=True)
        if first and memory > 1.1 * first:
            raise adpsgd.AdpsgdError(f"memory has grown from {first:.0f} to {memory:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--learners", type=int, default=8)
    parser.add_argument("--topology", choices=list(TOPOLOGIES), default="permuted-ring")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        learner(arguments.minutes, arguments.topology)
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(arguments.learners)]
    command += ["-m", "benchmarks.soak", "--worker", "--minutes", str(arguments.minutes), "--topology", arguments.topology]
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
