"""NIST's own scorer, where it is installed: the same files through ``hubscr.pl``, and the same counts expected."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from local.cli import RecipeError
from local.score.align import Counts
from local.score.nist import Word, cleaned, read_ctm

_FOLDERS = ("/usr/lib/sctk/bin", "/usr/local/sctk/bin")  # Debian's; a usual one


def find() -> Path | None:
    """The folder of ``hubscr.pl`` and ``sclite``."""
    found = shutil.which("hubscr.pl")
    folders = [Path(found).parent] if found else [Path(folder) for folder in _FOLDERS]
    return next((folder for folder in folders if (folder / "hubscr.pl").exists()), None)


def hubscr(folder: Path, stm: Path, glm: Path, words: list[Word], work: Path) -> dict[str, Counts]:
    """Run ``hubscr.pl`` on cleaned words; return the counts of each speaker of the stm (as sclite writes it, lower case).

    :param work: an empty folder, which gets sclite's reports, ``hyp.ctm.filt.*``.
    :raises RecipeError: where it fails, even if it has written a report.
    """
    shutil.copy(stm, work / "ref.stm")
    shutil.copy(glm, work / "glm")
    lines = (
        f"{w.file} {w.side} {w.start:.3f} {w.duration:.3f} {w.text}{'' if w.confidence is None else f' {w.confidence:f}'}\n"
        for w in words
    )
    (work / "hyp.ctm").write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
    done = subprocess.run(
        [folder / "hubscr.pl", "-V", "-l", "english", "-h", "hub5", "-g", "glm", "-r", "ref.stm", "hyp.ctm"],
        cwd=work,
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        encoding="latin-1",
        check=False,
    )
    report = work / "hyp.ctm.filt.raw"
    if done.returncode or not report.exists():
        raise RecipeError(f"hubscr.pl failed with {done.returncode} on {stm}: {(done.stdout + done.stderr)[-300:]}")
    return _read_raw(report.read_text(encoding="utf-8", errors="surrogateescape"))


def _read_raw(text: str) -> dict[str, Counts]:
    """The rows of sclite's raw report: speaker | sentences words | correct substituted deleted inserted ..."""
    speakers = {}
    for line in text.splitlines():
        cells = [cell.split() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 3 or len(cells[0]) != 1 or len(cells[1]) != 2 or not all(n.isdigit() for n in cells[1]):
            continue
        if cells[0][0] != "Sum":
            speakers[cells[0][0]] = Counts(*(int(n) for n in cells[2][:4]))
    return speakers


def compare(folder: Path, stm: Path, glm: Path, ctm: Path, ours: dict[str, Counts]) -> Counts:
    """Score ``ctm`` with NIST's tools too; return their sum.

    :param ours: our counts of each speaker of the stm, lower case.
    :raises RecipeError: where any count differs, with both.
    """
    # Without confidences, which change no count: sclite divides by zero where every word is right.
    words = [replace(word, confidence=None) for word in cleaned(read_ctm(ctm))]
    with tempfile.TemporaryDirectory() as work:
        theirs = hubscr(folder, stm, glm, words, Path(work))
    for speaker in sorted({*ours, *theirs}):
        mine, nist = ours.get(speaker, Counts()), theirs.get(speaker, Counts())
        if mine != nist:
            raise RecipeError(f"{ctm}: speaker {speaker}: our counts {mine} differ from sclite's {nist}; please report this")
    return sum(theirs.values(), Counts())
