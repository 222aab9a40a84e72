"""Switchboard-1: LDC97S62's audio and the ISIP (Mississippi State) transcripts as a data directory.

    python -m recipes.swbd.swbd1 --audio LDC97S62 --transcripts swb_ms98_transcriptions --out data/swbd1

The rules are those of Kaldi's swbd recipe, without its known faults: ids are in centiseconds rounded half up, and a
conversation side is a speaker. What is dropped is counted by reason in ``stats.json`` and named in the log.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path

from tqdm import tqdm

from local import audio
from local.cli import RecipeError, run
from local.datadir import DataDir, Recording, Utterance
from recipes.swbd.text import map_words

KNOWN_CALLS = (2435, 2438)  # releases of LDC97S62
KNOWN_UTTERANCES = 249_624
_FULL_SIZE = 2000  # calls: from here on the known counts are asked for
_TOLERATED_OVERHANG = Decimal("0.5")  # seconds a segment may end past the audio and be cut
_MIN_SHARE = 0.95

_SPH = re.compile(r"^sw_?0?(\d{4})\.sph$", re.IGNORECASE)
_TRANSCRIPT = re.compile(r"^sw(\d{4})([AB])-ms98-a-trans\.text$")
_SIDES = "AB"


def find_audio(root: Path) -> dict[str, Path]:
    """Find the calls' audio below ``root`` (CD and DVD trees): call number to path.

    :raises RecipeError: where there is none, or a call stands there twice.
    """
    calls: dict[str, Path] = {}
    for path in sorted(root.rglob("*")):
        if match := _SPH.match(path.name):
            if match[1] in calls:
                raise RecipeError(f"call {match[1]} stands there twice: {calls[match[1]]} and {path}; remove one")
            calls[match[1]] = path
    if not calls:
        raise RecipeError(f"{root}: no sw0NNNN.sph anywhere below; expected the discs of LDC97S62")
    return dict(sorted(calls.items()))


def find_transcripts(root: Path) -> dict[tuple[str, str], Path]:
    """Find the transcripts below ``root``: (call, side) to path.

    :raises RecipeError: where there is none.
    """
    found = {}
    for path in sorted(root.rglob("*-trans.text")):
        if match := _TRANSCRIPT.match(path.name):
            found[match[1], match[2]] = path
    if not found:
        raise RecipeError(
            f"{root}: no swNNNN{{A,B}}-ms98-a-trans.text anywhere below; expected the unpacked swb_ms98_transcriptions"
        )
    return dict(sorted(found.items()))


def centiseconds(seconds: Decimal) -> int:
    """Round half up to 1/100 s."""
    return int((seconds * 100).to_integral_value(ROUND_HALF_UP))


def utterance_id(speaker: str, start: int, end: int) -> str:
    """``sw02001-A_000098-001156`` of a speaker and centiseconds."""
    return f"{speaker}_{start:06d}-{end:06d}"


def read_transcript(path: Path) -> Iterator[tuple[Decimal, Decimal, str]]:
    """Yield start and end (seconds) and text of each line.

    :raises RecipeError: for a line that is not ``id start end words``, with its number.
    """
    for number, line in enumerate(path.read_text(encoding="latin-1").splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split(maxsplit=3)
        try:
            start, end = Decimal(fields[1]), Decimal(fields[2])
            if not (start.is_finite() and end.is_finite()):
                raise InvalidOperation
        except (IndexError, InvalidOperation):
            raise RecipeError(f"{path}:{number}: expected 'id start end words', found {line[:80]!r}") from None
        yield start, end, fields[3] if len(fields) > 3 else ""


def prepare(audio_root: Path, transcript_root: Path) -> tuple[DataDir, Counter[str]]:
    """Prepare the corpus; return it and how many utterances were dropped, by reason.

    :raises RecipeError: for an empty corpus, a transcript whose call has no audio, audio cut short or with a side
        missing, a transcript that cannot be read, or more than 5 % of the utterances lost.
    """
    calls, transcripts = find_audio(audio_root), find_transcripts(transcript_root)
    if orphans := sorted({call for call, _ in transcripts} - set(calls)):
        raise RecipeError(
            f"{len(orphans)} calls have a transcript in {transcript_root} but no audio in {audio_root}: "
            f"{', '.join(orphans[:10])}{' ...' if len(orphans) > 10 else ''}; "
            "copy the missing discs, or remove these transcripts"
        )
    if silent := sorted(set(calls) - {call for call, _ in transcripts}):
        print(f"warning: {len(silent)} calls have audio but no transcript: {silent[:10]}", file=sys.stderr)
    sound = {call: audio.info(calls[call]) for call in tqdm(sorted({call for call, _ in transcripts}), desc="headers")}
    _check_counting(sound, calls)
    recordings: dict[str, Recording] = {}
    utterances: dict[str, Utterance] = {}
    dropped: Counter[str] = Counter()
    spoken = 0
    for (call, side), path in tqdm(transcripts.items(), desc="swbd1", mininterval=2):
        found = sound[call]
        channel = _SIDES.index(side)
        if channel >= found.channels:
            raise RecipeError(
                f"{calls[call]}: side {side} is missing: the file has {found.channels} channel(s), and {path} "
                "transcribes it; copy the file again"
            )
        speaker = f"sw0{call}-{side}"
        limit = Decimal(found.num_samples) / audio.SAMPLE_RATE
        for start, end, text in read_transcript(path):
            words = map_words(text)
            if not words:
                continue  # silence: never an utterance
            spoken += 1
            reason = ""
            if end > limit + _TOLERATED_OVERHANG:
                reason = "ends past the audio"
            elif not 0 <= start < end:
                reason = "does not end after its start"
            first, last = centiseconds(start), min(centiseconds(end), int(limit * 100))
            key = utterance_id(speaker, first, last)
            if not reason and first >= last:
                reason = "shorter than 1/100 s"
            if not reason and key in utterances:
                reason = "same times as another"
            if reason:
                dropped[reason] += 1
                print(f"warning: {path.name} {start}-{end}: dropped: {reason}", file=sys.stderr)
                continue
            if centiseconds(end) > last:
                print(f"warning: {path.name} {start}-{end}: cut to the audio's end, {limit:.2f} s", file=sys.stderr)
            utterances[key] = Utterance(key, speaker, speaker, first / 100, last / 100, words)
            recordings[speaker] = Recording(speaker, calls[call], channel, f"sw0{call}", side, found.num_samples)
        if speaker not in recordings:
            print(f"warning: side {speaker}: no utterance in {path.name}, left out", file=sys.stderr)
    if not utterances:
        raise RecipeError(f"{transcript_root}: no utterance in {len(transcripts)} transcripts: the corpus is empty")
    if len(utterances) < _MIN_SHARE * spoken:
        raise RecipeError(
            f"{spoken - len(utterances)} of {spoken} utterances dropped ({dict(dropped)}); more than 5 % is too many: "
            "do the transcripts belong to this audio?"
        )
    data = DataDir(recordings, utterances)
    _compare_with_the_known(len(calls), len(utterances))
    return data, dropped


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


def _compare_with_the_known(calls: int, utterances: int) -> None:
    if calls < _FULL_SIZE:
        return
    if calls not in KNOWN_CALLS:
        print(f"warning: {calls} calls; LDC97S62 has {' or '.join(map(str, KNOWN_CALLS))}", file=sys.stderr)
    if utterances != KNOWN_UTTERANCES:
        print(f"warning: {utterances} utterances; {KNOWN_UTTERANCES} are known", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audio", type=Path, required=True)
    parser.add_argument("--transcripts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, dropped = prepare(arguments.audio, arguments.transcripts)
    data.write(arguments.out, dropped)
    print(f"swbd1: {data.stats(dropped)}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
