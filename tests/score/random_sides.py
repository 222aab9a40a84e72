"""Random references, hypotheses and mapping rules, and what sclite writes of them."""

from __future__ import annotations

import random
import re
from pathlib import Path

from test_golden import RULES

from local.score import sctk as nist
from local.score.align import Counts
from local.score.nist import cleaned, read_ctm

PLAIN = [*"ABCD", "WE", "WENT", "HE'S", "I'M", "OKAY", "UH-HUH", "GONNA", "WELL-KNOWN", "HE", "IS", "HAS", "O.", "AM"]
MARKED = [*PLAIN, *PLAIN, "(A)", "(WE-)", "WE-", "-ENT", "(A B)", "(%HESITATION)", "U. S.", "(WELL-KNOWN)", "W-", "A/B", "CAFÉ"]
CHOICES = ["{ A / B C }", "{ A / @ }", "{ @ / A B }", "{ (A) / B }", "{ HE'S / HE IS / { C / D } A }"]
SPOKEN = [word.lower() for word in [*PLAIN, "u._s.", "uh", "we-", "-ent", "[noise]", "mhm", "ok", "um", "a/b", "cafÉ"]]
GRIDS = (0.01, 0.01, 0.1, 0.5)  # seconds; coarse ones put words on borders and on each other
LABELS = {"O": "Overall", "sw": "SWB//Switchboard", "en": "CH", "F": "women", "M": "men"}
HEAD = "".join(f';; CATEGORY "{n}" "{name}" ""\n' for n, name in enumerate(["", "corpus", "sex"])) + "".join(
    f';; LABEL "{label}" "{name}" ""\n' for label, name in LABELS.items()
)


def text(rng: random.Random, vocabulary: list[str], most: int) -> str:
    """1 to ``most`` words."""
    return " ".join(rng.choice(vocabulary) for _ in range(rng.randint(1, most)))


def rules(rng: random.Random) -> str:
    """Rules of every form that NIST's files have, in words of the sides, in any order and section."""

    def word() -> str:
        return rng.choice(PLAIN)

    forms = [
        lambda: f"{word()} => {word()}",
        lambda: f"{word()} => {word()} {word()}",
        lambda: f"{word()} => {word()} / [ ] __ [ ] ;; so it is",
        lambda: f"{word()} {word()} => {word()} / [ ] __ [ ]",
        lambda: f"{word()} {word()} => {word()} {word()} {word()}",
        lambda: f"{word()}-{word()} => {word()} / [ ] __ [ ]",
        lambda: f"[{word()}] => [{word()} {word()}] / [ ] __ [ ]",
        lambda: f"[{word()} ] => [{word()} {word()} ]",
        lambda: f"{word()} => [{word()}] / [ ] __ [ ]",
        lambda: f"{word()} => {word()} / [{word()} ] __",
        lambda: f"{word()} => {word()} / [ ] __",
        lambda: f"{word()} => {word()} / __ [ {word()}]",
        lambda: f"{word()} => [] / [ ] __ [ ]",
        lambda: f'" {word()} " => " {word()} "',
        lambda: f"%HESITATION => {word()} / [ ] __ [ ]",
        lambda: f"{word()} => %HESITATION / [ ] __ [ ]",
        lambda: f"{word()[:1]} => {word()} / [ ] __ [E]",
    ]
    readings = [
        lambda: f"[{word()}] => [{{{word()} / {word()} {word()} / {word()} {word()}}}] / [ ] __ [ ]",
        lambda: f"[{word()}] => [{{{word()} {word()} / {word()} }}] / [ ] __ [ ]",
        lambda: f"{word()} => [{{{word()} {word()} / {word()} {word()}}}] / [ ] __ [ ]",
    ]
    lines = [rng.choice(forms)() for _ in range(rng.randint(0, 8))]
    for section in rng.sample(["ctm", "hyp", "stm", "ref"], rng.randint(0, 3)):
        lines.append(f';; INPUT_DEPENDENT_APPLICATION = "{section}"')
        lines += [rng.choice(forms)() for _ in range(rng.randint(0, 3))]
        if section in ("ctm", "hyp"):
            lines += [rng.choice(readings)() for _ in range(rng.randint(0, 4))]
    head, _, own = RULES.partition("case_sensitive = 'F'\n")
    case = rng.choice("FFT")
    return f"{head}case_sensitive = '{case}'\n" + rng.choice([own, ""]) + "\n".join(lines) + "\n"


def side(rng: random.Random, file: str, channel: str, spoken: list[str], written: list[str]) -> tuple[list[str], list[str]]:
    """Segments with gaps, overlaps, in any order, of several speakers; words anywhere, or none at all."""
    stm, clock = [], rng.choice([0, 0, 0.7, 3])
    labels = f"O,{rng.choice(['sw', 'en'])},{rng.choice('FM')}"
    for _ in range(rng.randint(1, 5)):
        length = rng.choice([0.3, 1, 2, 2, 4])
        clock = max(0, clock + rng.choice([0, 0, 0, 1.5, 0.1, -0.5, -1, -length]))
        words = rng.choice([text(rng, written, 7)] * 9 + ["IGNORE_TIME_SEGMENT_IN_SCORING", ""])
        speaker = f"{file}_{channel}{rng.choice(['', '', '2'])}"
        stm.append(f"{file} {channel} {speaker} {clock:.2f} {clock + length:.2f} <{labels}> {words}\n")
        clock += length
    if rng.random() < 0.07:
        return stm, []
    heard, grid = text(rng, spoken, 14).split(), rng.choice(GRIDS)
    starts = [round(rng.uniform(0, clock + 1) / grid) * grid for _ in heard]
    ctm = [f"{file} {channel} {at:.2f} {rng.choice([0.05, 0.2, 0.31, 0, 1.2, grid]):.2f} {word}"
           for at, word in zip(starts, heard, strict=True)]  # fmt: skip
    return list(dict.fromkeys(stm)), list(dict.fromkeys(ctm))


def sides(
    rng: random.Random,
    number: int,
    spoken: list[str] = SPOKEN,
    written: list[str] = MARKED + CHOICES,
) -> tuple[list[str], list[str]]:
    """The lines of an stm and, shuffled and without newlines, of a ctm."""
    stm, ctm = [HEAD], []
    for n in range(number):
        segments, words = side(rng, f"f{n // 2:03d}", "AB"[n % 2], spoken, written)
        stm += segments
        ctm += words
    rng.shuffle(ctm)
    return stm, ctm


def hubscr(sctk: Path, folder: Path, ctm: str = "hyp.ctm") -> Path:
    """Run ``hubscr.pl`` on a folder's ``ref.stm``, ``glm`` and ``ctm``; return a folder of its reports."""
    work = folder / f"nist.{ctm}"
    work.mkdir()
    nist.hubscr(sctk, folder / "ref.stm", folder / "glm", cleaned(read_ctm(folder / ctm)), work)
    return work


def read_sgml(path: Path) -> list[tuple[str, tuple[str, ...], Counts]]:
    """Speaker, labels, counts of every segment in sclite's alignments."""
    found, speaker, labels = [], "", ()
    for line in path.read_text(encoding="latin-1").splitlines():
        if match := re.match(r'<SPEAKER id="(.*)">', line):
            speaker = match[1]
        elif line.startswith("<PATH"):
            match = re.search(r'labels="<(.*?)>"', line)
            labels = tuple(match[1].split(",")) if match else ()
            found.append((speaker, labels, Counts()))
        elif not line.startswith("<"):
            verdicts = re.findall(r'(?:^|:)([CSDI]),(?="|,)', line)
            found[-1] = (speaker, labels, Counts(*(verdicts.count(kind) for kind in "CSDI")))
    return found


def read_table(path: Path) -> dict[str, list[float | None]]:
    """The rows of sclite's ``.sys`` or ``.raw``; None for what it cannot compute."""
    rows = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        cells = line.strip().strip("|").replace("|", " ").split()
        if len(cells) in (9, 10) and re.fullmatch(r"[\d.]+", cells[1]):
            figures = [cell.rstrip("*+#") for cell in cells[1:]]
            rows[cells[0]] = [float(figure) if figure and float(figure) > -1e6 else None for figure in figures]
    return rows
