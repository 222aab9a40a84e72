"""Fisher English, parts 1 and 2: speech (LDC2004S13, LDC2005S13) and transcripts (LDC2004T19, LDC2005T19).

    python -m recipes.swbd.fisher --transcripts LDC2004T19 LDC2005T19 [--audio LDC2004S13 LDC2005S13] --out data/fisher

Without audio the outcome is text alone, for the language model. Lines with ``((...))``, which the transcriber did not
understand, are left out. A conversation side is a speaker; its sex is in ``fe_03_p*_calldata.tbl``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from local.cli import RecipeError, run
from local.datadir import Recording
from local.files import atomic_dir
from recipes.swbd.corpus import (
    SIDES,
    Collection,
    centiseconds,
    check_pairs,
    differences,
    find_files,
    headers,
    read_lines,
    read_table,
    seconds,
    utterance_id,
    warn_if_empty,
)
from recipes.swbd.text import map_fisher

KNOWN = {"calls": (11_699,)}
_PARTS = {1: range(1, 5851), 2: range(5851, 11_700)}  # calls 00001 to 05850 are part 1
AUDIO = r"fe_03_(\d{5})\.(?:sph|wav|flac)"
TRANSCRIPT = r"fe_03_(\d{5})\.txt"
_LINE = re.compile(r"\s*(\S+)\s+(\S+)\s+([AB]):\s*(.*)")


class Mend(NamedTuple):
    """What is wrong with a line of the transcripts, and right instead."""

    start: Decimal | None = None
    text: str | None = None


# Lines known to be wrong, by call, side and times as they are in the transcript; without anything instead they are dropped.
_WRONG = {
    ("00027", "B", "393.80", "394.05"): Mend(),
    ("00265", "B", "33.53", "33.81"): Mend(text="correct"),
    ("00991", "B", "527.39", "528.29"): Mend(text="that's one of those"),
    ("01326", "A", "307.42", "307.93"): Mend(),
    ("10282", "A", "344.42", "344.84"): Mend(text="they don't want"),
    ("10677", "B", "101.04", "106.41"): Mend(
        text="uh my mine yeah the german shepherd pitbull mix he snores almost as loud as i do"
    ),
    ("11487", "B", "31.09", "234.06"): Mend(start=Decimal("231.09")),  # a segment of 203 s otherwise
}


class Line(NamedTuple):
    """A segment as the transcript has it."""

    side: str
    start: Decimal
    end: Decimal
    text: str
    where: str


def read_transcript(path: Path) -> Iterator[Line]:
    """Yield the segments of a call.

    :raises RecipeError: for a line that is not ``start end A|B: text``, with its number.
    """
    for number, line in read_lines(path):
        if line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        try:
            if not match:
                raise ValueError
            start, end = seconds(match[1]), seconds(match[2])
        except ValueError:
            raise RecipeError(f"{path}:{number}: expected 'start end A|B: text', found {line[:80]!r}") from None
        yield Line(match[3], start, end, match[4], f"{path.name}:{number}")


def read_sexes(roots: Sequence[Path]) -> dict[str, str]:
    """Read ``fe_03_p*_calldata.tbl``: the sex, m or f, by side (``00001A``); empty where there is no table."""
    sexes = {}
    for path in sorted({path for root in roots for path in root.rglob("*_calldata.tbl")}):
        for fields in read_table(path):
            if len(fields) > 11 and fields[0].isdigit():
                for side, place in zip(SIDES, (6, 11), strict=True):
                    if (sex := fields[place][:1]) in ("m", "f"):
                        sexes[fields[0] + side] = sex
    return sexes


def segments(transcripts: dict[str, Path], corpus: Collection) -> Iterator[tuple[str, Line, tuple[str, ...]]]:
    """Yield the call, line and words of every segment that the rules take; known errors are mended.

    :raises RecipeError: for a line that cannot be read, or has an unknown tag.
    """
    for call, path in tqdm(transcripts.items(), desc="fisher: transcripts", mininterval=2, unit="call"):
        for line in warn_if_empty(read_transcript(path), "fisher", path):
            mend = _WRONG.get((call, line.side, f"{line.start:.2f}", f"{line.end:.2f}"))
            if mend == Mend():
                corpus.leave_out(line.where, "known to be wrong")
                continue
            if mend is not None:
                line = line._replace(start=mend.start or line.start, text=mend.text or line.text)
                corpus.mend(line.where, "known to be wrong, put right")
            try:
                words = map_fisher(line.text)
            except ValueError as error:
                raise RecipeError(f"{path}: {line.where}: unknown tag {error} in {line.text[:80]!r}") from None
            if not line.text.strip():
                corpus.leave_out(line.where, "a line without words")
            elif words is None:
                corpus.leave_out(line.where, "not understood by the transcriber")
            elif words:
                yield call, line, words


def prepare(transcript_roots: Sequence[Path], audio_roots: Sequence[Path]) -> Collection:
    """Read the corpus with its audio.

    :raises RecipeError: for an empty corpus, a transcript without audio, a part without transcripts, audio that is cut
        short or has not both sides, or a transcript that cannot be read.
    """
    calls = find_files(audio_roots, AUDIO, "the discs of LDC2004S13 and LDC2005S13")
    transcripts = _transcripts(transcript_roots)
    check_pairs("fisher", set(calls), set(transcripts))
    sound = headers({call: calls[call] for call in transcripts}, "fisher: headers")
    sexes = read_sexes([*transcript_roots, *audio_roots])
    corpus = Collection("fisher")
    for call, line, words in segments(transcripts, corpus):
        file = f"fe_03_{call}"
        key = f"{file}-{line.side}"
        recording = Recording(key, calls[call], SIDES.index(line.side), file, line.side, sound[call].num_samples)
        corpus.add(recording, line.start, line.end, words, line.where)
    corpus.genders = {f"fe_03_{side[:5]}-{side[5]}": sex for side, sex in sexes.items()}
    return corpus


def write_text(transcript_roots: Sequence[Path], out: Path) -> None:
    """Write the text alone: ``text`` as in a data directory, ``stats.json`` and ``not_as_is.txt``.

    :raises RecipeError: as :func:`prepare`.
    """
    corpus = Collection("fisher")
    transcripts = _transcripts(transcript_roots)
    texts: dict[str, tuple[str, ...]] = {}
    for call, line, words in segments(transcripts, corpus):
        key = utterance_id(f"fe_03_{call}-{line.side}", centiseconds(line.start), centiseconds(line.end))
        if not 0 <= line.start < line.end:
            corpus.drop(line.where, "does not end after its start")
            continue
        if key in texts:
            corpus.drop(line.where, "same times as another")
        texts.setdefault(key, words)
    if not texts:
        raise RecipeError(f"fisher: no text in {len(transcripts)} transcripts ({dict(corpus.left_out)}): the corpus is empty")
    stats = {
        "calls": len(transcripts),
        "utterances": len(texts),
        "words": sum(map(len, texts.values())),
        "dropped": dict(sorted(corpus.dropped.items())),
        "left_out": dict(sorted(corpus.left_out.items())),
        "mended": dict(sorted(corpus.mended.items())),
    }
    stats["differs"] = differences(KNOWN, stats)
    for difference in stats["differs"]:
        print(f"warning: fisher: {difference}", file=sys.stderr)
    with atomic_dir(out) as folder:
        lines = (" ".join((key, *words)) for key, words in sorted(texts.items()))
        (folder / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (folder / "stats.json").write_text(json.dumps(stats, indent=2) + "\n", encoding="utf-8")
        (folder / "not_as_is.txt").write_text("".join(f"{line}\n" for line in corpus.log), encoding="utf-8")
    print(f"fisher (text only): {stats}", file=sys.stderr)


def _transcripts(roots: Sequence[Path]) -> dict[str, Path]:
    """All transcripts, by call; says which part is not whole."""
    found = find_files(roots, TRANSCRIPT, "fe_03_p1_tran and fe_03_p2_tran of LDC2004T19 and LDC2005T19")
    numbers = {int(call) for call in found}
    for part, calls in _PARTS.items():
        here = len(numbers.intersection(calls))
        if here != len(calls) and len(numbers) > len(calls) // 2:
            print(f"warning: fisher: part {part}: {here} transcripts found, {len(calls)} known", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transcripts", type=Path, nargs="+", required=True)
    parser.add_argument("--audio", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.audio:
        prepare(arguments.transcripts, arguments.audio).write(arguments.out, KNOWN)
    else:
        write_text(arguments.transcripts, arguments.out)


if __name__ == "__main__":
    run(main)
