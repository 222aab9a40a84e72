"""A model's parameters and gradients as one tensor each, so that mixing is one pass over memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from adpsgd.errors import AdpsgdError


class FlatModel:
    """The parameters of ``module`` moved into one buffer, of which they become views; the same for their gradients.

    ``parameter`` is what an optimizer is given. Gradients must be zeroed in place, never set to ``None``.
    """

    def __init__(self, module: nn.Module) -> None:
        """:raises AdpsgdError: where there is nothing to train, or parameters differ in type or device."""
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        kinds = {(p.dtype, p.device) for _, p in trained}
        if len(kinds) != 1:
            raise AdpsgdError(f"expected parameters of one dtype and device, found {kinds or 'none'}")
        [(dtype, device)] = kinds
        size = sum(p.numel() for _, p in trained)
        self.module = module
        self.values = torch.empty(size, dtype=dtype, device=device)
        self.gradients = torch.zeros(size, dtype=dtype, device=device)
        self.shapes = [(name, tuple(p.shape)) for name, p in trained]
        start = 0
        for _, p in trained:
            mine = slice(start, start + p.numel())
            self.values[mine] = p.detach().reshape(-1)
            p.data = self.values[mine].view(p.shape)
            p.grad = self.gradients[mine].view(p.shape)
            start = mine.stop
        self.parameter = nn.Parameter(self.values, requires_grad=True)
        self.parameter.grad = self.gradients

    def gradient_norm(self) -> Tensor:
        """The 2-norm over all parameters; not finite where any element is not."""
        return torch.linalg.vector_norm(self.gradients)
