"""Asynchronous decentralized parallel SGD (Lian et al. 2018; Cui et al., arXiv 2110.11199) on torch.distributed.

A learner holds a model of its own. It claims work, computes gradients and steps; what it exchanges with others, and whether
it waits for that, is its strategy's affair::

    world = adpsgd.World.join()
    learner = adpsgd.Learner(model, make_optimizer, adpsgd.strategy("adpsgd-random", seed=1), world)
    for epoch in range(epochs):
        for batch in learner.work(epoch, num_samples, batch_size, seed=1):
            loss = criterion(model(inputs[batch]), targets[batch])
            loss.backward()
            learner.step(float(loss.detach()), len(batch))
        with learner.averaged():
            evaluate(model)

Start it with ``torchrun --nproc-per-node L``. Nothing in here knows of speech.
"""

from adpsgd.checkpoint import Checkpoints
from adpsgd.errors import AdpsgdError
from adpsgd.flat import FlatModel
from adpsgd.learner import Learner
from adpsgd.schedule import Schedule
from adpsgd.strategies import STRATEGIES, Strategy, strategy
from adpsgd.topology import permuted_ring, ring_neighbours
from adpsgd.world import World

__all__ = [
    "STRATEGIES",
    "AdpsgdError",
    "Checkpoints",
    "FlatModel",
    "Learner",
    "Schedule",
    "Strategy",
    "World",
    "permuted_ring",
    "ring_neighbours",
    "strategy",
]
