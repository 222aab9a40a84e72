"""NIST's stm (reference segments) and ctm (timed hypothesis words)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from local.cli import RecipeError

IGNORED = "IGNORE_TIME_SEGMENT_IN_SCORING"
_LABEL = re.compile(r'^;;\s*LABEL\s+"([^"]*)"\s+"([^"]*)"')


@dataclass(frozen=True)
class Segment:
    """A stretch of a side, and what was said in it; times in seconds."""

    file: str
    side: str
    speaker: str
    start: float
    end: float
    labels: tuple[str, ...]
    text: str

    @property
    def ignored(self) -> bool:
        """Whether nothing in it is scored."""
        return self.text.strip().upper() == IGNORED


@dataclass(frozen=True)
class Word:
    """A hypothesis word with its time in seconds."""

    file: str
    side: str
    start: float
    duration: float
    text: str

    @property
    def middle(self) -> float:
        """The time by which it belongs to a segment."""
        return self.start + self.duration / 2


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError
    return value


def _lines(path: Path) -> list[tuple[str, str]]:
    """The lines of a file, each behind where it stands."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    return [(f"{path}:{number}", line) for number, line in enumerate(text.split("\n"), 1)]


def _balanced(text: str, marks: str, most: int) -> bool:
    """Whether an opening and a closing mark match, nested ``most`` deep at most."""
    depth = 0
    for character in text:
        depth += (character == marks[0]) - (character == marks[1])
        if not 0 <= depth <= most:
            return False
    return depth == 0


def read_stm(path: Path) -> tuple[list[Segment], dict[str, str]]:
    """Read an stm; return its segments, sorted by side and time, and the names of its labels.

    :raises RecipeError: for a line that is no segment, a label the header does not name, or brackets that do not match.
    """
    segments, names = [], {}
    for where, line in _lines(path):
        if match := _LABEL.match(line):
            names[match[1].lower()] = match[2]
        if not line.strip() or line.startswith(";;"):
            continue
        fields = line.split(maxsplit=5)
        try:
            start, end = _number(fields[3]), _number(fields[4])
            if end <= start:
                raise ValueError
        except (IndexError, ValueError):
            raise RecipeError(
                f"{where}: expected 'file side speaker start end [<label>] text' with start < end, found {line[:80]!r}"
            ) from None
        text = fields[5] if len(fields) > 5 else ""
        labels: tuple[str, ...] = ()
        if match := re.match(r"<([^>]*)>\s*(.*)$", text):
            labels, text = tuple(match[1].lower().split(",")), match[2]
        if unknown := [label for label in labels if label not in names]:
            raise RecipeError(f'{where}: the label {unknown[0]!r} has no header ;; LABEL "{unknown[0]}"; add one')
        if not _balanced(text, "()", 1) or not _balanced(text, "{}", len(text)):
            raise RecipeError(f"{where}: parentheses that do not match: {text[:80]!r}")
        segments.append(Segment(fields[0], fields[1], fields[2], start, end, labels, text))
    if not segments:
        raise RecipeError(f"{path}: no segments to score against")
    return sorted(segments, key=lambda s: (s.file, s.side, s.start)), names


def read_ctm(path: Path) -> list[Word]:
    """Read a ctm, sorted by side and time.

    :raises RecipeError: for a line that is not ``file side start duration word [confidence]``, or a word that would be
        optional or an alternative, with the line's number.
    """
    words = []
    for where, line in _lines(path):
        if not line.strip() or line.startswith(";;"):
            continue
        fields = line.split()
        try:
            if len(fields) not in (5, 6):
                raise ValueError
            words.append(Word(fields[0], fields[1], _number(fields[2]), _number(fields[3]), fields[4]))
        except ValueError:
            raise RecipeError(f"{where}: expected 'file side start duration word [confidence]', found {line[:80]!r}") from None
        if set(fields[4]) & set("(){}"):
            raise RecipeError(f"{where}: a hypothesis word with parentheses or braces, which are marks: {fields[4]!r}")
    return _sorted(words)


# Hesitations of Hub5: the reference makes them optional, the hypothesis is scored without them.
FILLERS = frozenset({"uh", "um", "eh", "mm", "hm", "ah", "huh", "ha", "er", "oof", "hee", "ach", "eee", "ew"})


def split_acronym(word: str) -> list[str]:
    """``u._s.`` as ``["u.", "s."]``, as NIST writes it; any other word as itself."""
    return re.sub(r"\._(?=\w)", ". ", word).split()


def cleaned(words: list[Word]) -> list[Word]:
    """What of a hypothesis is scored: no noise tags, unknown words, fragments and fillers; acronyms letter by letter.

    Kaldi's rules for Hub5, but for its loss of the real word "laughter".
    """
    kept = []
    for word in words:
        plain = word.text.lower()
        if re.fullmatch(r"\[.*\]|<.*>|!sil", plain) or plain.endswith("-") or plain in FILLERS:
            continue
        pieces = split_acronym(word.text)
        share = word.duration / len(pieces)
        kept += [Word(word.file, word.side, word.start + i * share, share, piece) for i, piece in enumerate(pieces)]
    return _sorted(kept)


def _sorted(words: list[Word]) -> list[Word]:
    return sorted(words, key=lambda word: (word.file, word.side, word.start))
