"""Whether two systems differ: against NIST's sc_stats where it is installed, and by closed forms."""

from __future__ import annotations

import itertools
import math
import random
import re
import subprocess
from pathlib import Path

import pytest
from random_sides import CHOICES, MARKED, SPOKEN, hubscr, sides
from test_golden import RULES

from local.cli import RecipeError
from local.score.significance import Scored, compare, matched_pairs, mcnemar, read_scored, stretches, table
from local.score.wer import Reference

_MATCHED = re.compile(
    r"MTCH_PR_RESULTS \(systems: (\S+) (\S+)\) \(# segs: (\d+)\).*?\(mean: (\S+)\) \(std dev: (\S+)\) \(Z Stat: (\S+)\)"
)
_UNIQUE = re.compile(r"corr +\d+ +(\d+)\n\s+incorr +(\d+) +\d+")


def scored(folder: Path, name: str, ctm: list[str]) -> list[Scored]:
    """Score a system's words against the folder's reference."""
    (folder / f"{name}.ctm").write_text("".join(f"{line}\n" for line in ctm), encoding="utf-8")
    result = Reference(folder / "ref.stm", folder / "glm").score(folder / f"{name}.ctm")
    (folder / name).mkdir()
    lines = "".join(line.as_json() + "\n" for line in result.lines)
    (folder / name / "alignments.jsonl").write_text(lines, encoding="utf-8")
    return read_scored(folder / name)


def sclite_alignments(sctk: Path, folder: Path, names: list[str]) -> str:
    """sclite's alignments of the systems, behind each other."""
    texts = {name: (hubscr(sctk, folder, f"{name}.ctm") / "hyp.ctm.filt.sgml").read_text(encoding="latin-1") for name in names}
    return "".join(text.replace('title="hyp.ctm"', f'title="{name}"', 1) for name, text in texts.items())


def sc_stats(sctk: Path, folder: Path, alignments: str, test: str) -> str:
    """What sc_stats writes of sclite's alignments."""
    command = [sctk / "sc_stats", "-p", "-v", "-t", test, "-n", "found", "-O", "."]
    subprocess.run(command, input=alignments, cwd=folder, check=True, capture_output=True, encoding="latin-1")
    return (folder / f"found.stats.{test}").read_text(encoding="latin-1")


def heard(rng: random.Random, stm: list[str], share: float) -> list[str]:
    """The reference's words, spread over their segments, a share of them others; marks are heard as they are written."""
    ctm = []
    for file, side, _, start, end, _, *written in (line.split() for line in stm if not line.startswith(";;")):
        words = [word for word in written if word.strip("{}/@()")]
        each = (float(end) - float(start)) / max(len(words), 1)
        for place, word in enumerate(words):
            word = rng.choice(SPOKEN) if rng.random() < share else word.strip("()").lower()
            ctm.append(f"{file} {side} {float(start) + place * each:.2f} {each:.2f} {word}")
    return list(dict.fromkeys(ctm))


@pytest.mark.parametrize("seed", range(4))
def test_random_systems_differ_as_sc_stats_says(seed: int, sctk: Path, tmp_path: Path) -> None:
    """Three systems on 100 sides: stretches, mean, deviation, z; and segments that only one of two got wrong."""
    rng = random.Random(seed)
    stm, _ = sides(rng, 100, written=MARKED + CHOICES if seed % 2 else MARKED)
    (tmp_path / "ref.stm").write_text("".join(stm), encoding="utf-8")
    (tmp_path / "glm").write_text(RULES, encoding="utf-8")
    shares = {"one": 0.1, "two": 0.15, "three": 0.4}
    systems = {name: scored(tmp_path, name, heard(rng, stm, share)) for name, share in shares.items()}
    pairs = list(itertools.combinations(systems, 2))
    alignments = sclite_alignments(sctk, tmp_path, list(systems))
    theirs = _MATCHED.findall(sc_stats(sctk, tmp_path, alignments, "mapsswe"))
    assert [tuple(row[:2]) for row in theirs] == pairs
    for first, second, number, *figures in theirs:
        row = compare(systems[first], systems[second])["matched_pairs"]
        assert row["stretches"] == int(number) > 100
        for name, figure in zip(("mean", "deviation", "z"), figures, strict=True):
            assert row[name] == pytest.approx(float(figure), abs=0.000501), name
    unique = _UNIQUE.findall(sc_stats(sctk, tmp_path, alignments, "mcn"))
    for (first, second), counts in zip(pairs, unique, strict=True):
        ours = compare(systems[first], systems[second])["mcnemar"]["wrong_in_one_only"]
        assert ours[::-1] == [int(count) for count in counts]
        assert sum(ours) > 10


def test_stretches_end_behind_two_words_that_both_have_right() -> None:
    assert stretches("CCSCC", "CCCCC") == [(1, 0)]
    assert stretches("SCSCCD", "CCCCCI") == [(2, 0), (1, 1)]
    assert stretches("SCCICS", "CCCCC") == [(1, 0), (2, 0)]
    assert stretches("CCC", "CCC") == []
    assert stretches("ICCC", "CCC") == [(1, 0)]


def test_matched_pairs_by_hand() -> None:
    """Differences 1, 0, 1, 2: mean 1, deviation sqrt(2/3), z = sqrt(6)."""
    found = matched_pairs([(1, 0), (1, 1), (2, 1), (2, 0)])
    assert (found.stretches, found.mean) == (4, 1.0)
    assert found.deviation == pytest.approx(math.sqrt(2 / 3))
    assert found.z == pytest.approx(math.sqrt(6))
    assert found.p == pytest.approx(0.0143058784)  # 2 (1 - Phi(2.449490)), of tables
    assert matched_pairs([(1, 0), (1, 0)]).z == 0.0
    assert matched_pairs([]).p == 1.0


def test_mcnemar_by_hand() -> None:
    """3 of 16 tosses or fewer on either side: 2 (1 + 16 + 120 + 560) / 65536."""
    assert mcnemar(3, 13) == mcnemar(13, 3) == pytest.approx(1394 / 65536)
    assert mcnemar(0, 0) == mcnemar(5, 5) == 1.0
    assert mcnemar(0, 1) == 1.0


def segment(side: str, label: str, verdicts: str) -> Scored:
    where = {"file": "f", "side": side, "speaker": side, "start": 0.0, "end": 1.0, "labels": ["o", label], "ref": "x"}
    return Scored(where, verdicts)


def test_table_has_all_segments_and_each_part() -> None:
    """A label that all segments have is no part."""
    first = [segment("A", "sw", "CCCC"), segment("B", "en", "CCSC")]
    second = [segment("A", "sw", "SCCC"), segment("B", "en", "SSCC")]
    rows = table(["a", "b"], [first, second])
    assert [row["label"] for row in rows] == ["all", "sw", "en"]
    assert [row["difference"] for row in rows] == [-25.0, -25.0, -25.0]
    assert rows[0]["wer"] == [12.5, 37.5]
    assert rows[0]["mcnemar"]["wrong_in_one_only"] == [0, 1]
    assert rows[0]["low"] == rows[0]["high"] == -25.0  # every side differs by as much


def test_systems_scored_against_other_references_are_refused() -> None:
    with pytest.raises(RecipeError, match="a and b were scored against different references"):
        table(["a", "b"], [[segment("A", "sw", "C")], [segment("B", "sw", "C")]])


def test_a_system_that_is_not_scored_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"alignments.jsonl: no such file; score the system"):
        read_scored(tmp_path)
