"""What NIST's test sets share: a reference (stm), scoring rules (glm), and segments that are all decoded, none left out."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from local import audio
from local.cli import RecipeError
from local.datadir import DataDir, Recording, Utterance
from local.score.nist import IGNORED
from local.score.wer import Reference
from recipes.swbd.corpus import SIDES, centiseconds, headers, read_lines, seconds, utterance_id
from recipes.swbd.text import from_stm

_CHANNELS = {"1": "A", "2": "B", "A": "A", "B": "B"}
_GAP = "inter_segment_gap"
_ASIDE = re.compile(r"<[be]_aside>", re.IGNORECASE)


class Segment(NamedTuple):
    """A stretch of a side, in centiseconds."""

    call: str
    side: str
    start: int
    end: int


def find(root: Path, pattern: str, what: str) -> Path:
    """Find the one file below ``root`` whose name matches ``pattern``, whatever the case.

    :raises RecipeError: where there is none, or more than one.
    """
    found = [path for path in sorted(root.rglob("*")) if re.fullmatch(pattern, path.name, re.IGNORECASE)]
    if len(found) != 1:
        raise RecipeError(f"{root}: expected one {what} ({pattern}) below, found {len(found)}: {found[:3]}")
    return found[0]


def read_segment(place: str, line: str) -> Segment:
    """Read the head of a line ``call side speaker start end ...``, of a pem or an stm; sides 1 and 2 are A and B.

    :raises RecipeError: for a line that is not such, with its place.
    """
    fields = line.split()
    try:
        start, end = (centiseconds(seconds(time)) for time in (fields[3], fields[4]))
        if not 0 <= start < end:
            raise ValueError
        return Segment(fields[0], _CHANNELS[fields[1].upper()], start, end)
    except (ValueError, KeyError, IndexError):
        raise RecipeError(f"{place}: expected 'call A|B speaker start end ...' with start < end, found {line[:80]!r}") from None


def read_stm(paths: Sequence[Path]) -> tuple[str, dict[Segment, tuple[str, ...]], list[Segment]]:
    """Read and mend an stm: its text, the words of each segment that is scored, and the segments that are not.

    A doubled bracket, which NIST's filter cannot read, is made one; marks of asides and lines for gaps go; channels 1 and 2
    become sides A and B.

    :raises RecipeError: for a line that is not ``call side speaker start end [<label>] text``, with its number.
    """
    lines: list[str] = []
    scored: dict[Segment, tuple[str, ...]] = {}
    ignored: list[Segment] = []
    for path in paths:
        for number, line in read_lines(path):
            if line.startswith(";;"):
                lines.append(line)
                continue
            if _GAP in line.lower():
                lines.append(";; a gap")  # so that the numbers of the lines stay
                continue
            place = f"{path}:{number}"
            segment = read_segment(place, line)
            line = _ASIDE.sub("", line).replace("((", "(").replace("))", ")")
            head = line.split(maxsplit=5)
            rest = head[5] if len(head) > 5 else ""
            lines.append(" ".join([head[0], segment.side, *head[2:5], rest]).rstrip())
            text = rest.split(">", 1)[1] if rest.startswith("<") and ">" in rest else rest
            if IGNORED in text.upper():
                ignored.append(segment)
            elif segment in scored:
                raise RecipeError(f"{place}: the segment {' '.join(line.split()[:5])} stands there twice; remove one")
            else:
                scored[segment] = from_stm(text)
    if not scored:
        raise RecipeError(f"{', '.join(map(str, paths))}: no segment to score")
    return "".join(f"{line}\n" for line in lines), scored, ignored


def prepare(
    name: str, segments: Sequence[Segment], texts: Mapping[Segment, tuple[str, ...]], sound: Mapping[str, Path]
) -> DataDir:
    """Every segment as an utterance, with words where it is scored.

    :param sound: audio by call, in lower case.
    :raises RecipeError: for a scored segment that is not among the segments, a call without audio, a side that is missing,
        or a segment past the audio.
    """
    if unknown := sorted(set(texts) - set(segments)):
        first = unknown[0]
        raise RecipeError(
            f"{name}: {len(unknown)} scored segments of the stm are not in the pem, the first is {first.call} {first.side} "
            f"{first.start / 100:.2f} {first.end / 100:.2f}: do both come from the same release?"
        )
    calls = sorted({segment.call for segment in segments})
    if missing := [call for call in calls if call.lower() not in sound]:
        raise RecipeError(f"{name}: no audio for the calls {', '.join(missing[:10])}; copy the missing disc")
    found = headers({call: sound[call.lower()] for call in calls}, f"{name}: headers")
    recordings: dict[str, Recording] = {}
    utterances: dict[str, Utterance] = {}
    for segment in segments:
        path, key = sound[segment.call.lower()], f"{segment.call}-{segment.side}"
        samples = found[segment.call].num_samples
        last = min(segment.end, samples * 100 // audio.SAMPLE_RATE)
        if last <= segment.start:
            raise RecipeError(
                f"{path}: the segment {segment.call} {segment.side} at {Decimal(segment.start) / 100} s lies past the audio's "
                f"end, {samples / audio.SAMPLE_RATE:.2f} s; copy the file again"
            )
        if last < segment.end:
            where = f"{segment.call} {segment.side} {segment.start / 100:.2f} {segment.end / 100:.2f}"
            print(f"warning: {name}: the segment {where} is cut to the audio's end, {last / 100:.2f} s", file=sys.stderr)
        recordings[key] = Recording(key, path, SIDES.index(segment.side), segment.call, segment.side, samples)
        utterance = utterance_id(key, segment.start, segment.end)
        utterances[utterance] = Utterance(utterance, key, key, segment.start / 100, last / 100, texts.get(segment, ()))
    return DataDir(recordings, utterances)


def read_glm(path: Path) -> str:
    """Read scoring rules.

    :raises RecipeError: where there is none.
    """
    rules = [line for _, line in read_lines(path) if not line.lstrip().startswith(";;") and "=>" in line]
    if not rules:
        raise RecipeError(f"{path}: no rule 'A => B' in it; expected NIST's scoring rules")
    return path.read_text(encoding="latin-1")


def read_reference(stm: str, glm: str, names: tuple[str, str] = ("stm", "glm")) -> Reference:
    """Read reference and rules as the scoring will.

    :param names: of the files they come from, for errors.
    :raises RecipeError: where stm or glm cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in names]
        for path, text in zip(paths, (stm, glm), strict=True):
            path.write_text(text, encoding="utf-8")
        try:
            return Reference(*paths)
        except RecipeError as error:
            raise RecipeError(str(error).replace(f"{folder}/", "")) from None


def scored_counts(stm: str, glm: str) -> dict[str, Any]:
    """Segments and words that are scored: of all, and by label of the stm.

    :raises RecipeError: as :func:`read_reference`.
    """
    result = read_reference(stm, glm).score_words([])
    return {
        label or "all": {"segments": len(result.of(label)), "words": result.total(label).words}
        for label in (None, *result.labels)
    }


def compare(found: Mapping[str, Any], known: Mapping[str, tuple[int, int]]) -> list[str]:
    """Say where a whole set does not have the counts that the field knows."""
    if found["all"]["segments"] < known["all"][0] / 2:
        return []
    return [
        f"{label}: {found[label]['segments']} segments and {found[label]['words']} words found, {segments} and {words} known"
        for label, (segments, words) in known.items()
        if label in found and (found[label]["segments"], found[label]["words"]) != (segments, words)
    ]


def write(name: str, data: DataDir, stm: str, glm: str, known: Mapping[str, tuple[int, int]], sides: int, out: Path) -> None:
    """Write the set with its stm and glm; say where its counts are not the known ones.

    :param known: segments and words that are scored, of all and by label; :param sides: conversation sides.
    """
    scored = scored_counts(stm, glm)
    differs = compare(scored, known)
    if len(data.recordings) != sides and scored["all"]["segments"] >= known["all"][0] / 2:
        differs.append(f"{len(data.recordings)} sides found, {sides} known")
    for difference in differs:
        print(f"warning: {name}: {difference}", file=sys.stderr)
    about = {"scored": scored, "differs": differs}
    data.write(out, about, {"stm": stm, "glm": glm})
    print(f"{name}: {data.stats() | about}", file=sys.stderr)
