"""Random references and hypotheses get the counts that NIST's hubscr.pl gives them, side by side."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from test_golden import HEAD, RULES

from local.cli import RecipeError
from local.score import sctk as nist
from local.score.align import Counts
from local.score.wer import Reference

PLAIN = [*"ABCD", "WE", "WENT", "HE'S", "I'M", "OKAY", "UH-HUH", "GONNA", "WELL-KNOWN", "HE", "IS", "HAS", "O.", "AM"]
MARKED = [*PLAIN, *PLAIN, "(A)", "(WE-)", "WE-", "-ENT", "(A B)", "(%HESITATION)", "U. S.", "(WELL-KNOWN)", "W-", "A/B"]
CHOICES = ["{ A / B C }", "{ A / @ }", "{ @ / A B }", "{ (A) / B }", "{ HE'S / HE IS / { C / D } A }"]
SPOKEN = [word.lower() for word in [*PLAIN, "u._s.", "uh", "we-", "-ent", "[noise]", "mhm", "ok", "um", "a/b"]]
GRIDS = (0.01, 0.01, 0.1, 0.5)  # seconds; coarse ones put words on borders and on each other


def _text(rng: random.Random, vocabulary: list[str], most: int) -> str:
    return " ".join(rng.choice(vocabulary) for _ in range(rng.randint(1, most)))


def _side(rng: random.Random, file: str, channel: str) -> tuple[list[str], list[str]]:
    """Segments with gaps, overlaps, in any order, of several speakers; words anywhere, or none at all."""
    stm, clock = [], rng.choice([0, 0, 0.7, 3])
    for _ in range(rng.randint(1, 5)):
        length = rng.choice([0.3, 1, 2, 2, 4])
        clock = max(0, clock + rng.choice([0, 0, 0, 1.5, 0.1, -0.5, -1, -length]))
        text = rng.choice([_text(rng, MARKED + CHOICES, 7)] * 9 + ["IGNORE_TIME_SEGMENT_IN_SCORING", ""])
        speaker = f"{file}_{channel}{rng.choice(['', '', '2'])}"
        stm.append(f"{file} {channel} {speaker} {clock:.2f} {clock + length:.2f} <O> {text}\n")
        clock += length
    if rng.random() < 0.07:
        return stm, []
    words, grid = _text(rng, SPOKEN, 14).split(), rng.choice(GRIDS)
    starts = [round(rng.uniform(0, clock + 1) / grid) * grid for _ in words]
    ctm = [f"{file} {channel} {at:.2f} {rng.choice([0.05, 0.2, 0.31, 0, 1.2, grid]):.2f} {word}\n"
           for at, word in zip(starts, words, strict=True)]  # fmt: skip
    return stm, list(dict.fromkeys(ctm))


@pytest.mark.parametrize("seed", [1, 2])
def test_random_sides_score_as_hubscr_scores_them(seed: int, sctk: Path, tmp_path: Path) -> None:
    """500 sides at a time; the test's own check is that a count changed by one is found."""
    rng = random.Random(seed)
    stm, ctm = [], []
    for number in range(500):
        segments, words = _side(rng, f"f{number // 2:03d}", "AB"[number % 2])
        stm += segments
        ctm += words
    rng.shuffle(ctm)
    for name, content in (("ref.stm", [HEAD, *stm]), ("hyp.ctm", ctm), ("glm", [RULES])):
        (tmp_path / name).write_text("".join(content))
    result = Reference(tmp_path / "ref.stm", tmp_path / "glm").score(tmp_path / "hyp.ctm")
    assert len(result.silent_sides) >= 10
    ours: dict[str, Counts] = {}
    for line in result.lines:
        key = line.segment.speaker.lower()
        ours[key] = ours.get(key, Counts()) + line.counts
    theirs = nist.compare(sctk, tmp_path / "ref.stm", tmp_path / "glm", tmp_path / "hyp.ctm", ours)
    assert theirs == result.total()
    speaker = next(iter(ours))
    ours[speaker] += Counts(inserted=1)
    with pytest.raises(RecipeError, match=f"speaker {speaker}: our counts"):
        nist.compare(sctk, tmp_path / "ref.stm", tmp_path / "glm", tmp_path / "hyp.ctm", ours)
