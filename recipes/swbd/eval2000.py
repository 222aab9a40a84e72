"""Hub5'00: LDC2002S09's audio and pem, LDC2002T43's stm and glm as a data directory that is scored whole.

    python -m recipes.swbd.eval2000 --audio LDC2002S09/hub5e_00 --text LDC2002T43 --out data/eval2000

Utterances are the segments of the pem; none is ever left out. The stm (with the one bracket that NIST's filter cannot
read put right) and the glm go along into the data directory.
"""

from __future__ import annotations

import argparse
import re
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path

from local import audio
from local.cli import RecipeError, run
from local.datadir import DataDir, Recording, Utterance
from recipes.swbd.swbd1 import centiseconds, utterance_id
from recipes.swbd.text import from_stm

KNOWN_SEGMENTS, KNOWN_SIDES = 4459, 80
_IGNORED = "IGNORE_TIME_SEGMENT_IN_SCORING"
_SIDES = "AB"

Segment = tuple[str, str, int, int]  # call, side, start and end in centiseconds


def find(root: Path, pattern: str, what: str) -> Path:
    """Find the one file below ``root`` whose name matches ``pattern``, whatever the case.

    :raises RecipeError: where there is none, or more than one.
    """
    found = [path for path in sorted(root.rglob("*")) if re.fullmatch(pattern, path.name, re.IGNORECASE)]
    if len(found) != 1:
        raise RecipeError(f"{root}: expected one {what} ({pattern}) below, found {len(found)}: {found[:3]}")
    return found[0]


def read_pem(path: Path) -> list[Segment]:
    """Read ``call side speaker start end`` lines.

    :raises RecipeError: for a line that is not such, with its number.
    """
    segments = []
    for number, line in enumerate(path.read_text(encoding="latin-1").splitlines(), 1):
        if line.strip() and not line.startswith((";", "#")):
            fields = line.split()
            segments.append(_segment(path, number, line, fields, times=fields[3:5]))
    return segments


def read_stm(path: Path) -> tuple[str, dict[Segment, tuple[str, ...]]]:
    """Read an stm; return its text, mended, and the words of each segment that is scored.

    :raises RecipeError: for a line that is not ``call side speaker start end [<label>] text``, with its number.
    """
    text = path.read_text(encoding="latin-1").replace("((", "(").replace("))", ")")
    segments = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith(";;"):
            continue
        fields = line.split()
        segment = _segment(path, number, line, fields, times=fields[3:5])
        rest = fields[6:] if len(fields) > 5 and fields[5].startswith("<") else fields[5:]
        if _IGNORED not in (word.upper() for word in rest):
            segments[segment] = from_stm(" ".join(rest))
    return text, segments


def _segment(path: Path, number: int, line: str, fields: list[str], times: list[str]) -> Segment:
    try:
        start, end = (centiseconds(Decimal(time)) for time in times)
        if fields[1] not in _SIDES or end <= start:
            raise ValueError
    except (ValueError, InvalidOperation, IndexError):
        raise RecipeError(
            f"{path}:{number}: expected 'call A|B speaker start end ...' with start < end, found {line[:80]!r}"
        ) from None
    return fields[0], fields[1], start, end


def prepare(audio_root: Path, text_root: Path) -> tuple[DataDir, str, str]:
    """Prepare the set; return it, the text of its stm, and of its glm.

    :raises RecipeError: for missing files, a call without audio, a side that is missing, a segment past the audio,
        or a scored segment of the stm that the pem lacks.
    """
    segments = read_pem(find(audio_root, r"hub5e_00\.pem", "pem"))
    stm, texts = read_stm(find(text_root, r"hub5e00\.english\.000405\.stm", "stm"))
    glm = find(text_root, r"en20000405_hub5\.glm", "glm").read_text(encoding="latin-1")
    sound = {path.stem.lower(): path for path in sorted(audio_root.rglob("*")) if path.suffix.lower() == ".sph"}
    if unknown := sorted(set(texts) - set(segments)):
        call, side, start, end = unknown[0]
        raise RecipeError(
            f"{len(unknown)} scored segments of the stm are not in the pem, the first is {call} {side} "
            f"{start / 100:.2f} {end / 100:.2f}: do both come from the same release?"
        )
    recordings: dict[str, Recording] = {}
    utterances: dict[str, Utterance] = {}
    for call, side, start, end in segments:
        if call.lower() not in sound:
            raise RecipeError(f"{audio_root}: no audio for the call {call} of the pem; copy the missing disc")
        path, speaker = sound[call.lower()], f"{call}-{side}"
        found = audio.info(path)
        channel = _SIDES.index(side)
        if channel >= found.channels:
            raise RecipeError(f"{path}: side {side} is missing: the file has {found.channels} channel(s)")
        recordings[speaker] = Recording(speaker, path, channel, call, side, found.num_samples)
        last = min(end, found.num_samples * 100 // audio.SAMPLE_RATE)
        if last <= start:
            raise RecipeError(f"{path}: a segment of the pem, {start / 100:.2f} s, lies past the audio's end")
        key = utterance_id(speaker, start, end)
        words = texts.get((call, side, start, end), ())
        utterances[key] = Utterance(key, speaker, speaker, start / 100, last / 100, words)
    if len(recordings) >= KNOWN_SIDES and len(texts) != KNOWN_SEGMENTS:
        print(f"warning: {len(texts)} scored segments; Hub5'00 has {KNOWN_SEGMENTS}", file=sys.stderr)
    return DataDir(recordings, utterances), stm, glm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audio", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, stm, glm = prepare(arguments.audio, arguments.text)
    data.write(arguments.out, extra={"stm": stm, "glm": glm})
    print(f"eval2000: {data.stats()}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
