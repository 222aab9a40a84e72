"""Hub5'00: LDC2002S09's audio and pem, LDC2002T43's stm and glm as a data directory that is scored whole.

    python -m recipes.swbd.eval2000 --audio LDC2002S09/hub5e_00 --text LDC2002T43 --out data/eval2000

Utterances are the segments of the pem; none is ever left out. The stm, mended, and the glm go along.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from local.cli import run
from local.datadir import DataDir
from recipes.swbd import evalset
from recipes.swbd.corpus import find_files, read_lines

KNOWN = {"all": (4459, 42_989), "sw": (1831, 21_395), "en": (2628, 21_594)}  # segments and words that are scored
KNOWN_SIDES = 80
AUDIO = r"((?:sw|en)_\d+)\.(?:sph|wav|flac)"
PEM, STM, GLM = r"hub5e_00\.pem", r"hub5e00\.english\.000405\.stm", r"en20000405_hub5\.glm"


def read_pem(path: Path) -> list[evalset.Segment]:
    """Read ``call side speaker start end`` lines.

    :raises RecipeError: for a line that is not such, with its number.
    """
    lines = ((f"{path}:{number}", line) for number, line in read_lines(path))
    return [evalset.read_segment(place, line) for place, line in lines if not line.startswith((";", "#"))]


def prepare(audio_root: Path, text_root: Path) -> tuple[DataDir, str, str]:
    """Prepare the set; return it, the text of its stm, and of its glm.

    :raises RecipeError: for missing files, a call without audio, a side that is missing, a segment past the audio,
        or a scored segment of the stm that the pem lacks.
    """
    segments = read_pem(evalset.find(audio_root, PEM, "pem"))
    reference, rules = evalset.find(text_root, STM, "stm"), evalset.find(text_root, GLM, "glm")
    stm, texts, ignored = evalset.read_stm([reference])
    glm = evalset.read_glm(rules)
    evalset.read_reference(stm, glm, (reference.name, rules.name))  # here an error still names the user's file
    if unknown := sorted(set(segments) - {*texts, *ignored}):
        print(
            f"warning: eval2000: {len(unknown)} segments of the pem are not in the stm, the first is {unknown[0].call} "
            f"{unknown[0].side} {unknown[0].start / 100:.2f}; they are decoded and not scored",
            file=sys.stderr,
        )
    sound = find_files([audio_root], AUDIO, "the english/ of LDC2002S09 with its sw_NNNN.sph and en_NNNN.sph")
    return evalset.prepare("eval2000", segments, texts, {call.lower(): path for call, path in sound.items()}), stm, glm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audio", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, stm, glm = prepare(arguments.audio, arguments.text)
    evalset.write("eval2000", data, stm, glm, KNOWN, KNOWN_SIDES, arguments.out)


if __name__ == "__main__":
    run(main)
