"""The paper's acoustic model: bidirectional LSTM layers, a linear bottleneck, a linear layer to the tied states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence


@dataclass(frozen=True)
class AmConf:
    """The network's shape. The paper's: 6 layers, 512 cells, bottleneck 256 (from memory of it)."""

    layers: int
    cells: int  # of each direction
    bottleneck: int
    dropout: float  # between LSTM layers; the paper has none


class AcousticModel(nn.Module):
    """Frames to scores of the tied states, before the softmax."""

    def __init__(self, inputs: int, states: int, conf: AmConf) -> None:
        """:param inputs: dimensions of a frame; :param states: pdf-ids."""
        super().__init__()
        self.register_buffer("shift", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.lstm = nn.LSTM(
            inputs,
            conf.cells,
            conf.layers,
            batch_first=True,
            bidirectional=True,
            dropout=conf.dropout if conf.layers > 1 else 0.0,
        )
        self.bottleneck = nn.Linear(2 * conf.cells, conf.bottleneck)
        self.output = nn.Linear(conf.bottleneck, states)

    def normalise_by(self, frames: Tensor) -> None:
        """Set the fixed shift and scale that give ``frames`` ``(frames, inputs)`` zero mean and unit variance."""
        self.shift.copy_(frames.mean(0))
        self.scale.copy_(1 / frames.std(0).clamp_min(1e-3))

    def forward(self, inputs: Tensor) -> Tensor:
        """``(batch, time, inputs)`` to logits ``(batch, time, states)``."""
        hidden, _ = self.lstm((inputs - self.shift) * self.scale)
        return self.output(self.bottleneck(hidden))

    def utterances(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """``(time, inputs)`` each to logits ``(time, states)`` each: sequences of any lengths side by side."""
        if not inputs:
            return []
        packed = pack_sequence([(frames - self.shift) * self.scale for frames in inputs], enforce_sorted=False)
        hidden, _ = self.lstm(packed)
        return unpack_sequence(hidden._replace(data=self.output(self.bottleneck(hidden.data))))
