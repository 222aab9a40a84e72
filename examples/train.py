"""Train a small classifier on generated data with any strategy.

torchrun --nproc-per-node 4 examples/train.py --strategy adpsgd-random

Interrupt it and start it again: it goes on from its checkpoint.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import nn

import adpsgd

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--strategy", default="adpsgd-random", help=f"{', '.join(adpsgd.STRATEGIES)}; options after commas")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--checkpoints", type=Path, help="folder; none are written without it")
arguments = parser.parse_args()


def spirals(seed: int, count: int = 6000, arms: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on noisy spiral arms, and their arms."""
    generator = torch.Generator().manual_seed(seed)
    arm = torch.randint(arms, (count,), generator=generator)
    radius = torch.rand(count, generator=generator)
    angle = 4 * radius + arm * 2 * torch.pi / arms + 0.15 * torch.randn(count, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), arm


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
points, arms = spirals(1)
new_points, new_arms = spirals(2)

with adpsgd.World.join() as world:
    world.stop_on_signals()
    schedule = adpsgd.Schedule(0.05, 0.2, warmup_epochs=1, shape="cosine", epochs=arguments.epochs)
    strategy = adpsgd.strategy(arguments.strategy, seed=1)
    learner = adpsgd.Learner(model, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), strategy, world, schedule)
    checkpoints = adpsgd.Checkpoints(arguments.checkpoints or Path(), learner, {"strategy": arguments.strategy})
    if arguments.checkpoints:
        checkpoints.resume()
    while learner.epoch < arguments.epochs and not learner.stopped:
        for batch in learner.work(len(points), 32, seed=1):
            learner.backward(nn.functional.cross_entropy(model(points[batch]), arms[batch]), len(batch))
            learner.step()
        if arguments.checkpoints:
            checkpoints.save()
        with learner.averaged() as distance, torch.no_grad():
            right = float((model(new_points).argmax(1) == new_arms).float().mean())
        if world.rank == 0:
            print(f"epoch {learner.position:.2f}: {right:.1%} right, consensus distance {distance:.4f}", flush=True)
    if learner.stopped:
        sys.exit(adpsgd.STOPPED)
