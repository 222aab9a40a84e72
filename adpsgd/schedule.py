"""The learning rate as a function of the work done by all learners together."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up from ``initial`` to ``peak``, then a fall by ``decay`` an epoch.

    The paper's shape (from memory of it): 10 epochs of warm-up, then 1/sqrt(2) an epoch, 16 epochs in all.
    """

    initial: float
    peak: float
    warmup_epochs: float
    decay: float = 1 / math.sqrt(2)

    def __call__(self, epoch: float) -> float:
        """The rate after ``epoch`` passes over the data, a fraction counted too; the fall goes in steps of an epoch."""
        if epoch < self.warmup_epochs:
            return self.initial + (self.peak - self.initial) * epoch / self.warmup_epochs
        return self.peak * self.decay ** math.floor(epoch - self.warmup_epochs + 1)
