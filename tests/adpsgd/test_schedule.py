"""The paper's schedule: linear warm-up, then a factor of 1/sqrt(2) an epoch."""

from __future__ import annotations

import math

import pytest

from adpsgd import Schedule


def test_the_papers_shape() -> None:
    schedule = Schedule(0.1, 1.0, 10)
    assert schedule(0) == pytest.approx(0.1)
    assert schedule(5) == pytest.approx(0.55)
    assert schedule(9.999999) == pytest.approx(1.0, abs=1e-5)
    assert schedule(10) == pytest.approx(1 / math.sqrt(2))
    assert schedule(10.9) == pytest.approx(1 / math.sqrt(2))
    assert schedule(15.5) == pytest.approx((1 / math.sqrt(2)) ** 6)
