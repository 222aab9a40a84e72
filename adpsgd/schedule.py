"""The learning rate as a function of the work done by all learners together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from adpsgd.errors import AdpsgdError


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up from ``initial`` to ``peak``, then one of these shapes:

    =============  ==========================================================================================
    ``annealed``   x ``decay`` at the end of the warm-up and after every further epoch
    ``exponential``  the same fall, but smooth: ``decay`` an epoch
    ``steps``      x ``decay`` at each of ``milestones``, in epochs
    ``linear``     straight down to 0 at ``epochs``
    ``cosine``     half a cosine down to 0 at ``epochs``
    ``constant``   the peak
    =============  ==========================================================================================

    The paper's (from memory of it): ``annealed`` with 10 epochs of warm-up, then 1/sqrt(2) an epoch, 16 epochs in all.
    """

    initial: float
    peak: float
    warmup_epochs: float
    shape: str = "annealed"
    decay: float = 1 / math.sqrt(2)
    milestones: tuple[float, ...] = ()
    epochs: float = math.inf

    def __post_init__(self) -> None:
        """:raises AdpsgdError: for an unknown shape, or one that lacks what it needs."""
        if self.shape not in _SHAPES:
            raise AdpsgdError(f"unknown schedule {self.shape!r}; known: {', '.join(_SHAPES)}")
        if self.shape in ("linear", "cosine") and not self.warmup_epochs < self.epochs < math.inf:
            raise AdpsgdError(f"a {self.shape} schedule needs epochs, more than the {self.warmup_epochs} of warm-up")
        if self.shape == "steps" and not self.milestones:
            raise AdpsgdError("a schedule of steps needs milestones, in epochs")

    def __call__(self, epoch: float) -> float:
        """The rate after ``epoch`` passes over the data, a fraction counted too."""
        if epoch < self.warmup_epochs:
            return self.initial + (self.peak - self.initial) * epoch / self.warmup_epochs
        return self.peak * _SHAPES[self.shape](self, epoch)

    def _after(self, epoch: float) -> float:
        """The share of the way from the warm-up's end to the last epoch."""
        return min(1.0, (epoch - self.warmup_epochs) / (self.epochs - self.warmup_epochs))


_SHAPES: dict[str, Callable[[Schedule, float], float]] = {
    "annealed": lambda s, epoch: s.decay ** math.floor(epoch - s.warmup_epochs + 1),
    "exponential": lambda s, epoch: s.decay ** (epoch - s.warmup_epochs),
    "steps": lambda s, epoch: s.decay ** sum(epoch >= milestone for milestone in s.milestones),
    "linear": lambda s, epoch: 1 - s._after(epoch),
    "cosine": lambda s, epoch: (1 + math.cos(math.pi * s._after(epoch))) / 2,
    "constant": lambda s, epoch: 1.0,
}
