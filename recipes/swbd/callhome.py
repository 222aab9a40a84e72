"""CallHome American English: LDC97S42's speech and LDC97T14's transcripts as a data directory for training.

    python -m recipes.swbd.callhome --audio LDC97S42 --transcripts LDC97T14 --out data/callhome

Five to ten minutes of each of the 120 calls are transcribed. All three parts (train, devtest, evltest) are taken: the calls
of Hub5'00 are others. A second person on a side, ``A1``, is a speaker of their own. Turns that were not understood,
``((...))``, or hold another language are left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from local.cli import RecipeError, run
from local.datadir import Recording
from recipes.swbd.corpus import SIDES, Collection, check_pairs, find_files, headers, read_lines, seconds, warn_if_empty
from recipes.swbd.text import map_callhome

KNOWN = {"calls": (120,)}
AUDIO = r"en_(\d{4})\.(?:sph|wav|flac)"
TRANSCRIPT = r"en_(\d{4})\.txt"
_LIKE_A_TURN = re.compile(  # no line that goes on begins with a time, two numbers, or a side
    r"\s*(?:-?\d+[.,]\d|(?:-?[\d.,]+|inf|nan)\s+(?:-?[\d.,]+|inf|nan)\s|[A-Z]\d?:(?:\s|$))", re.IGNORECASE
)
_TURN = re.compile(r"\s*(-?[\d.]+|nan)\s+(-?[\d.]+|nan)\s+([AB])(\d?):\s*(.*)", re.IGNORECASE)


class Turn(NamedTuple):
    """A turn as the transcript has it."""

    side: str
    person: str  # "" or the number of a further person on the side
    start: Decimal
    end: Decimal
    text: str
    where: str


def read_transcript(path: Path) -> Iterator[Turn]:
    """Yield the turns of a call; a line without times goes on with the turn before it.

    :raises RecipeError: for a line that is no turn where none has begun, or with times that are none.
    """
    turn: Turn | None = None
    for number, line in read_lines(path):
        if line.lstrip().startswith("#"):
            continue
        match = _TURN.fullmatch(line)
        if match is None:
            if turn is None or _LIKE_A_TURN.match(line):
                raise RecipeError(f"{path}:{number}: expected 'start end A|B: text', found {line[:80]!r}")
            turn = turn._replace(text=f"{turn.text} {line.strip()}")
            continue
        if turn is not None:
            yield turn
        try:
            start, end = seconds(match[1]), seconds(match[2])
        except ValueError:
            raise RecipeError(f"{path}:{number}: expected 'start end A|B: text', found {line[:80]!r}") from None
        turn = Turn(match[3].upper(), match[4], start, end, match[5], f"{path.name}:{number}")
    if turn is not None:
        yield turn


def prepare(audio_roots: Sequence[Path], transcript_roots: Sequence[Path]) -> Collection:
    """Read the corpus.

    :raises RecipeError: for an empty corpus, a transcript without audio, audio that is cut short or has not both sides, or
        a transcript that cannot be read.
    """
    calls = find_files(audio_roots, AUDIO, "the disc of LDC97S42 with its en_NNNN.sph")
    transcripts = find_files(transcript_roots, TRANSCRIPT, "the transcrpt/ of LDC97T14 with its en_NNNN.txt")
    check_pairs("callhome", set(calls), set(transcripts))
    sound = headers({call: calls[call] for call in transcripts}, "callhome: headers")
    corpus = Collection("callhome")
    for call, path in tqdm(transcripts.items(), desc="callhome: transcripts", mininterval=2, unit="call"):
        for turn in warn_if_empty(read_transcript(path), "callhome", path):
            if not turn.text.strip():
                corpus.leave_out(turn.where, "a line without words")
                continue
            words = map_callhome(turn.text)
            if words is None:
                corpus.leave_out(turn.where, "not understood, or not English")
                continue
            if not words:
                continue
            file = f"en_{call}"
            side = f"{file}-{turn.side}"
            # A letter sorts behind the "_" that follows the first speaker's id: so by speaker is by utterance.
            speaker = side + (chr(ord("a") + int(turn.person)) if turn.person else "")
            recording = Recording(side, calls[call], SIDES.index(turn.side), file, turn.side, sound[call].num_samples)
            corpus.add(recording, turn.start, turn.end, words, turn.where, speaker, speaker)
    return corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audio", type=Path, nargs="+", required=True)
    parser.add_argument("--transcripts", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    prepare(arguments.audio, arguments.transcripts).write(arguments.out, KNOWN)


if __name__ == "__main__":
    run(main)
