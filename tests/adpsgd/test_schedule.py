"""The paper's schedule, linear warm-up and a factor of 1/sqrt(2) an epoch, and the other shapes."""

from __future__ import annotations

import math

import pytest

from adpsgd import AdpsgdError, Schedule


def test_the_papers_shape() -> None:
    schedule = Schedule(0.1, 1.0, 10)
    assert schedule(0) == pytest.approx(0.1)
    assert schedule(5) == pytest.approx(0.55)
    assert schedule(9.999999) == pytest.approx(1.0, abs=1e-5)
    assert schedule(10) == pytest.approx(1 / math.sqrt(2))
    assert schedule(10.9) == pytest.approx(1 / math.sqrt(2))
    assert schedule(15.5) == pytest.approx((1 / math.sqrt(2)) ** 6)


@pytest.mark.parametrize(
    ("shape", "options", "values"),
    [
        ("constant", {}, {1: 2.0, 2: 2.0, 9: 2.0}),
        ("exponential", {"decay": 0.25}, {1: 2.0, 1.5: 1.0, 2: 0.5, 3: 0.125}),
        ("steps", {"decay": 0.1, "milestones": (3, 5)}, {1: 2.0, 2.9: 2.0, 3: 0.2, 5: 0.02}),
        ("linear", {"epochs": 5}, {1: 2.0, 2: 1.5, 3: 1.0, 5: 0.0, 6: 0.0}),
        ("cosine", {"epochs": 5}, {1: 2.0, 2: 1 + math.sqrt(0.5), 3: 1.0, 5: 0.0}),
    ],
)
def test_the_other_shapes(shape: str, options: dict, values: dict[float, float]) -> None:
    schedule = Schedule(1.0, 2.0, 1, shape, **options)
    assert schedule(0.5) == pytest.approx(1.5)
    for epoch, rate in values.items():
        assert schedule(epoch) == pytest.approx(rate, abs=1e-12), epoch


def test_a_shape_without_what_it_needs_is_refused() -> None:
    with pytest.raises(AdpsgdError, match="unknown schedule 'slanted'; known: annealed, "):
        Schedule(0.1, 1, 1, "slanted")
    with pytest.raises(AdpsgdError, match="a cosine schedule needs epochs, more than the 3 of warm-up"):
        Schedule(0.1, 1, 3, "cosine", epochs=3)
    with pytest.raises(AdpsgdError, match="needs milestones"):
        Schedule(0.1, 1, 3, "steps")
