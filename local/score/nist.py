"""NIST's stm (reference segments) and ctm (timed hypothesis words)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from local.cli import RecipeError

IGNORED = "IGNORE_TIME_SEGMENT_IN_SCORING"
_HEADER = re.compile(r'^;;\s*(LABEL|CATEGORY)\s+"([^"]*)"\s+"([^"]*)"')


@dataclass(frozen=True)
class Label:
    """A part of the reference, and what it is a part by: ``SWB``, say, by ``corpus``; as the stm's header calls them."""

    name: str
    category: str


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
    """A hypothesis word with its time in seconds, and the probability that it is right."""

    file: str
    side: str
    start: float
    duration: float
    text: str
    confidence: float | None = None

    @property
    def middle(self) -> float:
        """The time by which it belongs to a segment."""
        return self.start + self.duration / 2


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0 or "_" in text:
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


def read_stm(path: Path) -> tuple[list[Segment], dict[str, Label]]:
    """Read an stm; return its segments, sorted by side and time, and its labels.

    The place of a label among a segment's, ``<o,sw,f>``, is its category's among the header's, as in sclite.

    :raises RecipeError: for a line that is no segment or stands there twice, a label that the header does not name or that
        changes its place, or brackets that do not match.
    """
    segments: list[Segment] = []
    names: dict[str, str] = {}
    categories: list[str] = []
    places: dict[str, int] = {}
    lines: set[Segment] = set()
    for where, line in _lines(path):
        if match := _HEADER.match(line):
            kind, identity, title = match[1], match[2].lower(), match[3].replace("//", " ")
            if kind == "LABEL":
                names[identity] = title
            else:
                categories.append(title)
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
        for place, label in enumerate(labels):
            if not label:
                continue
            if label not in names:
                raise RecipeError(f'{where}: the label {label!r} has no header ;; LABEL "{label}"; add one')
            if places.setdefault(label, place) != place:
                raise RecipeError(f"{where}: the label {label!r} stands in place {place + 1}, before in {places[label] + 1}")
        if not _balanced(text, "()", 1) or not _balanced(text, "{}", len(text)):
            raise RecipeError(f"{where}: parentheses that do not match: {text[:80]!r}")
        segment = Segment(*fields[:3], start, end, tuple(filter(None, labels)), text)
        if segment in lines:
            raise RecipeError(f"{where}: this segment stands there twice, its words would count twice: {line[:80]!r}")
        lines.add(segment)
        segments.append(segment)
    if not segments:
        raise RecipeError(f"{path}: no segments to score against")
    of_place = dict(enumerate(categories))
    labels_of = {label: Label(name, of_place.get(places.get(label, -1), "")) for label, name in names.items()}
    return sorted(segments, key=lambda s: (s.file, s.side, s.start)), labels_of


def read_ctm(path: Path) -> list[Word]:
    """Read a ctm, sorted by side and time. A file without words is an empty hypothesis.

    :raises RecipeError: for a line that is not ``file side start duration word [confidence]``, a confidence above 1 or of
        some words only, the same word at the same time twice, or a word that would be optional or an alternative, with
        the line's number.
    """
    words: list[Word] = []
    lines: set[Word] = set()
    for where, line in _lines(path):
        if not line.strip() or line.startswith(";;"):
            continue
        fields = line.split()
        try:
            if len(fields) not in (5, 6):
                raise ValueError
            start, duration, *confidence = (_number(field) for field in (*fields[2:4], *fields[5:]))
        except ValueError:
            raise RecipeError(f"{where}: expected 'file side start duration word [confidence]', found {line[:80]!r}") from None
        word = Word(*fields[:2], start, duration, fields[4], *confidence)
        if confidence and word.confidence > 1:
            raise RecipeError(f"{where}: expected a confidence from 0 to 1, found {fields[5]}")
        if words and (word.confidence is None) != (words[0].confidence is None):
            raise RecipeError(f"{where}: some words have a confidence and some have none; give all one, or none: {line[:80]!r}")
        if set(word.text) & set("(){}"):
            raise RecipeError(f"{where}: a hypothesis word with parentheses or braces, which are marks: {word.text!r}")
        if duration and word in lines:
            raise RecipeError(f"{where}: the same word at the same time twice; were two files joined? {line[:80]!r}")
        lines.add(word)
        words.append(word)
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
        kept += [replace(word, start=word.start + i * share, duration=share, text=piece) for i, piece in enumerate(pieces)]
    return _sorted(kept)


def _sorted(words: list[Word]) -> list[Word]:
    return sorted(words, key=lambda word: (word.file, word.side, word.start))
