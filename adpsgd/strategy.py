"""What a strategy is: the exchange with other learners that goes with a step."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from adpsgd.flat import FlatModel
from adpsgd.world import World


class Strategy(ABC):
    """One learner's part. ``step`` alone changes the weights: autograd would not notice it from another thread."""

    def __init__(self) -> None:
        self.description = type(self).__name__  # of the strategy and its options, compared between learners
        self.steps = 0  # of this learner
        self.rounds = 0  # exchanges this learner has taken part in
        self.merged = 0  # rounds whose outcome came into the weights with the last step
        self.moved = 0.0  # 2-norm of what the last round changed in this learner's model
        self.waited = 0.0  # seconds the last step waited for others
        self.mixing = 0.0  # seconds spent on exchanges, in whatever thread, since the start
        self.link_megabytes = 0.0  # a second, for experiments: an exchange takes at least as long as such a link would

    def start(self, flat: FlatModel, world: World) -> None:
        """Take the model. All learners begin with learner 0's weights and buffers."""
        self.flat = flat
        self.world = world
        for tensor in (flat.mixed, *(p.data for p in flat.module.parameters() if not p.requires_grad), *flat.module.buffers()):
            world.broadcast(tensor, 0)

    @property
    def team(self) -> range:
        """The learners that step side by side with this one: all of them, unless the strategy is asynchronous."""
        return range(self.world.size)

    @property
    def team_group(self) -> dist.ProcessGroup | None:
        """The process group of a team that is smaller than all."""
        return None

    def begin(self) -> None:  # noqa: B027
        """Be ready for the others' exchanges: an epoch's work begins."""

    def prepare(self) -> None:  # noqa: B027
        """The gradient of the present weights is about to be computed: what can be exchanged meanwhile may set out."""

    def step(self, optimizer: Optimizer, samples: int) -> None:
        """Combine and apply: the gradients of ``samples`` samples, a mean over them, lie in the flat model.

        With no samples the learner takes part in exchanges, and its optimizer is left alone. Alone, it is the optimizer's step.
        """
        self.steps += 1
        self.waited, self.merged = 0.0, 0
        if self.world.size > 1:
            self._step(optimizer, samples)
        elif samples:
            optimizer.step()

    @abstractmethod
    def _step(self, optimizer: Optimizer, samples: int) -> None:
        """What :meth:`step` does among several learners; ``steps`` counts this one already."""

    def drain(self) -> None:  # noqa: B027
        """Come to rest at the end of the work, when what others still need of this learner is given."""

    def steps_until_heard(self) -> int:
        """The steps from now, fewest first, after which none can be taken unless word of this learner has come to all.

        With them a learner can call a halt that no other has already passed. Only teams of all learners are asked.
        """
        return 1

    def state(self) -> Mapping[str, int]:
        """Counters that a resumed run goes on from."""
        return {"steps": self.steps, "rounds": self.rounds}

    def restore(self, state: Mapping[str, int]) -> None:
        """Take up what :meth:`state` has given."""
        self.steps, self.rounds = state["steps"], state["rounds"]

    def _mean_gradient(self, message: Tensor, samples: int, group: dist.ProcessGroup | None = None) -> tuple[int, float]:
        """Replace the gradients by their mean over all samples of a team; ``message`` is longer by two elements than they.

        The last element is summed too: a learner sets it beforehand. Returns the team's samples, and that sum.
        """
        torch.mul(self.flat.gradients, samples, out=message[:-2])
        message[-2] = samples
        self.world.all_reduce(message, group)
        total, last = message[-2:].tolist()
        torch.div(message[:-2], max(total, 1), out=self.flat.gradients)
        return int(total), last

    def _exchanged(self, began: float, message: Tensor) -> None:
        """Count the time of an exchange that began then, and let it last as long as on the link to be imitated."""
        if self.link_megabytes:
            seconds = message.numel() * message.element_size() / self.link_megabytes / 1e6
            time.sleep(max(0.0, began + seconds - time.perf_counter()))
        self.mixing += time.perf_counter() - began


def receivers(spare: list[Tensor], count: int, message: Tensor) -> list[Tensor]:
    """The first ``count`` of the buffers in ``spare``, which grows as needed, each like ``message``."""
    while len(spare) < count:
        spare.append(torch.empty_like(message, pin_memory=message.is_pinned()))
    return spare[:count]


def difference(sent: Tensor, arrivals: list[Tensor]) -> Tensor:
    """The mean of the sent model and the arrived ones, minus the sent: what mixing changes. In place of the first arrival.

    Over all learners these differences sum to zero, because every learner subtracts what it has sent.
    """
    if not arrivals:
        return torch.zeros_like(sent)
    total = arrivals[0]
    for other in arrivals[1:]:
        total.add_(other)
    return total.sub_(sent, alpha=len(arrivals)).div_(len(arrivals) + 1)
