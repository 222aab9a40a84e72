"""One buffer for parameters and gradients, with views that autograd fills."""

from __future__ import annotations

import pytest
import torch

from adpsgd import AdpsgdError
from adpsgd.flat import FlatModel


def test_an_lstm_with_flat_parameters_computes_the_same_gradients() -> None:
    torch.manual_seed(0)
    plain = torch.nn.LSTM(5, 4, 2, bidirectional=True, batch_first=True)
    moved = torch.nn.LSTM(5, 4, 2, bidirectional=True, batch_first=True)
    moved.load_state_dict(plain.state_dict())
    flat = FlatModel(moved)
    x = torch.randn(3, 7, 5)
    for _ in range(2):  # gradients add up in place
        plain(x)[0].square().sum().backward()
        moved(x)[0].square().sum().backward()
    expected = torch.cat([p.grad.flatten() for p in plain.parameters()])
    torch.testing.assert_close(flat.gradients, expected)
    assert float(flat.gradient_norm()) == pytest.approx(float(expected.norm()), rel=1e-5)


def test_the_buffer_is_the_model() -> None:
    module = torch.nn.Linear(2, 2)
    flat = FlatModel(module)
    flat.values.fill_(3.0)
    assert module.weight.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    module.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    assert flat.values.tolist() == [1, 0, 0, 1, 0, 0]


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(AdpsgdError, match="found none"):
        FlatModel(torch.nn.ReLU())
