"""Asynchronous decentralized parallel SGD (Lian et al. 2018; Cui et al., arXiv 2110.11199) on torch.distributed.

A learner holds a model of its own. It claims work, computes gradients and steps; what it exchanges with others, and whether
it waits for that, is its strategy's affair::

    with adpsgd.World.join() as world:
        learner = adpsgd.Learner(model, make_optimizer, adpsgd.strategy("adpsgd-random", seed=1), world)
        while learner.epoch < epochs:
            for batch in learner.work(len(inputs), batch_size, seed=1):
                learner.backward(criterion(model(inputs[batch]), targets[batch]), len(batch))
                learner.step()
            with learner.averaged():
                evaluate(model)

Start it with ``torchrun --nproc-per-node L``; ``examples/train.py`` is a whole program. Nothing in here knows of speech.
"""

from adpsgd.checkpoint import Checkpoints
from adpsgd.errors import AdpsgdError, ExchangeError
from adpsgd.learner import Learner
from adpsgd.schedule import Schedule
from adpsgd.strategies import STRATEGIES, strategy
from adpsgd.strategy import Strategy
from adpsgd.telemetry import Telemetry
from adpsgd.topology import TOPOLOGIES
from adpsgd.world import LOST, STOPPED, World

__all__ = [
    "LOST",
    "STOPPED",
    "STRATEGIES",
    "TOPOLOGIES",
    "AdpsgdError",
    "Checkpoints",
    "ExchangeError",
    "Learner",
    "Schedule",
    "Strategy",
    "Telemetry",
    "World",
    "strategy",
]
