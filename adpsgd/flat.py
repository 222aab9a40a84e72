"""A model's parameters and gradients as one tensor each, so that mixing is one pass over memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from adpsgd.errors import AdpsgdError


class FlatModel:
    """The parameters of ``module`` moved into one buffer, of which they become views; the same for their gradients.

    ``parameter`` is what an optimizer is given. Gradients must be zeroed in place, never set to ``None``: a parameter that
    a loss does not use then has a gradient of zeros in its own place.

    ``mixed`` is what learners average: the parameters, ``values``, and after them the momentum where that is mixed too.
    """

    def __init__(self, module: nn.Module, with_momentum: bool = False) -> None:
        """:raises AdpsgdError: where there is nothing to train, or parameters differ in type or device."""
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        kinds = {(p.dtype, p.device) for _, p in trained}
        if len(kinds) != 1:
            raise AdpsgdError(f"expected parameters of one dtype and device, found {kinds or 'none'}")
        [(dtype, device)] = kinds
        size = sum(p.numel() for _, p in trained)
        self.module = module
        self.mixed = torch.zeros(2 * size if with_momentum else size, dtype=dtype, device=device)
        self.values = self.mixed[:size]
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

    def share_momentum(self, optimizer: Optimizer) -> None:
        """Keep the momentum of ``optimizer`` in the mixed buffer.

        :raises AdpsgdError: for another optimizer than SGD with momentum.
        """
        if not isinstance(optimizer, SGD) or not optimizer.param_groups[0]["momentum"]:
            raise AdpsgdError("only SGD with momentum has a momentum to mix; leave mix_momentum out for other optimizers")
        momentum = self.mixed[len(self.values) :]
        state = optimizer.state[self.parameter]
        if state.get("momentum_buffer") is not None:  # from a checkpoint
            momentum.copy_(state["momentum_buffer"])
        state["momentum_buffer"] = momentum

    def statistics(self) -> list[Tensor]:
        """The module's floating-point buffers, such as batch norm's: not trained, but averaged with the model."""
        return [buffer for buffer in self.module.buffers() if buffer.is_floating_point()]

    def gradient_norm(self) -> Tensor:
        """The 2-norm over all parameters; not finite where any element is not."""
        return torch.linalg.vector_norm(self.gradients)
