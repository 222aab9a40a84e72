"""Who speaks: voices of the engine, made distinct by accent, variant, pitch and rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_ACCENTS = ("gmw/en-US", "gmw/en", "gmw/en-GB-x-rp", "gmw/en-GB-scotland", "gmw/en-US-nyc", "gmw/en-029")
# Variants that give the same samples every time; the clear ones are heard in training.
_CLEAR = (
    "edward|klatt4|m6|klatt3|adam|benjamin|Alex|Denis|john|m5|Reed|m1|m3|grandpa|steph|Mike|m4|f1|m7|belinda|f4|m8|max|linda"
)
_UNHEARD = "Andy|quincy|rob|robert|m2|paul|boris|Annie|Lee|david"  # the later ones are hard


@dataclass(frozen=True)
class Voice:
    """A voice's name for the engine, and its settings (engine units)."""

    name: str
    rate: int
    pitch: int
    range: int


def _make(variants: str, rng: np.random.Generator) -> list[Voice]:
    return [
        Voice(
            f"{_ACCENTS[number % len(_ACCENTS)]}+{variant}",
            int(rng.integers(150, 190)),
            int(rng.integers(35, 65)),
            int(rng.integers(35, 65)),
        )
        for number, variant in enumerate(variants.split("|"))
    ]


def cast(rng: np.random.Generator) -> tuple[list[Voice], list[Voice]]:
    """The voices of the training calls, and those that only ``en_`` calls have."""
    return _make(_CLEAR, rng), _make(_UNHEARD, rng)
