"""Switchboard-1: LDC97S62's audio and the ISIP (Mississippi State) transcripts as a data directory.

    python -m recipes.swbd.swbd1 --audio LDC97S62 --transcripts swb_ms98_transcriptions [--persons DOCS] --out data/swbd1

The rules are those of Kaldi's swbd recipe, without its known faults: ids are in centiseconds rounded half up, and a
conversation side is a speaker. With LDC's tables (``conv_tab.csv``, ``caller_tab.csv``) the person who speaks is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from tqdm import tqdm

from local import audio
from local.cli import RecipeError, run
from local.datadir import Recording
from recipes.swbd.corpus import SIDES, Collection, check_pairs, find_files, headers, read_lines, read_table, seconds
from recipes.swbd.text import map_words

KNOWN = {"calls": (2435, 2438), "utterances": (249_624, 249_536)}  # the second without the side left out below
_LEFT_OUT = {"2167B": "a side that is all but empty: GMM training fails on it"}
TABLES = r"(conv|caller)[_.]tab(?:\.csv)?"
AUDIO = r"sw_?0?(\d{4})\.(?:sph|wav|flac)"
TRANSCRIPT = r"sw(\d{4}[AB])-ms98-a-trans\.text"
_GENDERS = {"MALE": "m", "FEMALE": "f"}


def read_transcript(path: Path, side: str) -> Iterator[tuple[Decimal, Decimal, str, str]]:
    """Yield start and end (seconds), text and place of each line.

    :param side: whose transcript this is, ``2001A``.
    :raises RecipeError: for a line that is not ``id start end words``, or is of another side, with its number.
    """
    for number, line in read_lines(path):
        fields = line.split(maxsplit=3)
        try:
            start, end = seconds(fields[1]), seconds(fields[2])
        except (IndexError, ValueError):
            raise RecipeError(f"{path}:{number}: expected 'id start end words', found {line[:80]!r}") from None
        if not fields[0].upper().startswith(f"SW{side}-"):
            raise RecipeError(f"{path}:{number}: expected a line of side {side}, found {fields[0]}: were files swapped?")
        yield start, end, fields[3] if len(fields) > 3 else "", f"{path.name}:{number}"


def read_persons(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Read LDC's tables: the person's number by side (``2001A``), and the gender, m or f, by number.

    :raises RecipeError: where ``conv_tab`` is missing or of another form.
    """
    tables = find_files([folder], TABLES, "conv_tab.csv and caller_tab.csv of LDC97S62's documents")
    if "CONV" not in tables:
        raise RecipeError(f"{folder}: no conv_tab.csv; expected the tables of LDC97S62's documents")
    persons: dict[str, str] = {}
    for fields in _rows(tables["CONV"]):  # 2001,Y,1020,1044,303,...: call, -, who called, who was called
        if len(fields) < 4 or not (fields[2].isdigit() and fields[3].isdigit()):
            raise RecipeError(f"{tables['CONV']}: expected 'call,flag,caller,called,...', found {','.join(fields)[:80]!r}")
        persons |= {fields[0] + side: fields[place] for side, place in zip(SIDES, (2, 3), strict=True)}
    if not persons:
        raise RecipeError(f"{tables['CONV']}: no line 'call,flag,caller,called,...'")
    rows = _rows(tables["CALLER"]) if "CALLER" in tables else []
    genders = {fields[0]: _GENDERS[fields[3]] for fields in rows if len(fields) > 3 and fields[3] in _GENDERS}
    if "CALLER" in tables and not genders:
        print(f"warning: {tables['CALLER']}: no line 'person,-,-,MALE or FEMALE,...': genders stay unknown", file=sys.stderr)
    return persons, genders


def _rows(path: Path) -> list[list[str]]:
    return [row for row in read_table(path) if row[0].isdigit()]  # a header has none


def prepare(audio_roots: Sequence[Path], transcript_root: Path, persons_root: Path | None = None) -> Collection:
    """Read the corpus.

    :raises RecipeError: for an empty corpus, a transcript whose call has no audio, audio cut short or with a side
        missing, or a transcript that cannot be read.
    """
    calls = find_files(audio_roots, AUDIO, "the discs of LDC97S62 with their sw0NNNN.sph")
    transcripts = find_files([transcript_root], TRANSCRIPT, "the unpacked swb_ms98_transcriptions")
    check_pairs("swbd1", set(calls), {side[:4] for side in transcripts})
    sound = headers({call: calls[call] for call in sorted({side[:4] for side in transcripts})}, "swbd1: headers", summed=True)
    _check_sides(set(sound), set(transcripts))
    _check_counting(sound, calls)
    persons, genders = read_persons(persons_root) if persons_root else ({}, {})
    corpus = Collection("swbd1")
    unknown = 0
    for side, path in tqdm(transcripts.items(), desc="swbd1: transcripts", mininterval=2, unit="side"):
        call, letter = side[:4], side[4]
        key, speaker, prefix = f"sw0{call}-{letter}", "", ""
        if side in persons:
            speaker, prefix = f"sw{persons[side]}", f"sw{persons[side]}-0{call}-{letter}"
            if persons[side] in genders:
                corpus.genders[speaker] = genders[persons[side]]
        recording = Recording(key, calls[call], SIDES.index(letter), f"sw0{call}", letter, sound[call].num_samples)
        before = len(corpus.utterances)
        for start, end, text, where in read_transcript(path, side):
            words = map_words(text)
            if not text.strip():
                corpus.leave_out(where, "a line without words")
            elif not words:
                pass  # silence: never an utterance
            elif side in _LEFT_OUT:
                corpus.leave_out(where, _LEFT_OUT[side])
            else:
                corpus.add(recording, start, end, words, where, speaker, prefix)
        if len(corpus.utterances) == before:
            print(f"warning: side {key}: no utterance in {path.name}, left out", file=sys.stderr)
        unknown += bool(persons) and side not in persons
    if unknown:
        print(
            f"warning: {unknown} of {len(transcripts)} sides have no person in conv_tab: each is one of its own",
            file=sys.stderr,
        )
    return corpus


def _check_sides(calls: set[str], transcribed: set[str]) -> None:
    missing = sorted({call + letter for call in calls for letter in SIDES} - transcribed)
    if missing:
        print(f"warning: swbd1: {len(missing)} sides have no transcript, the first is {missing[0]}", file=sys.stderr)


def _check_counting(sound: dict[str, audio.AudioInfo], calls: dict[str, Path]) -> None:
    """Tell release 1, whose headers all count both channels together, from a file that was cut in half.

    :raises RecipeError: where only some of the files hold half of what their header promises.
    """
    halves = [call for call, found in sound.items() if found.summed]
    if halves and len(halves) < len(sound):
        raise RecipeError(
            f"{calls[halves[0]]}: cut short: the data hold half of what the header promises ({len(halves)} of {len(sound)} "
            "calls are so; in release 1 all would be); copy it again"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audio", type=Path, nargs="+", required=True)
    parser.add_argument("--transcripts", type=Path, required=True)
    parser.add_argument("--persons", type=Path, help="the folder with conv_tab.csv and caller_tab.csv")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    prepare(arguments.audio, arguments.transcripts, arguments.persons).write(arguments.out, KNOWN)


if __name__ == "__main__":
    run(main)
