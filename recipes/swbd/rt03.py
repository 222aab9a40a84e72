"""RT-03, the English telephone part of NIST's evaluation of 2003 (LDC2007S10), as a data directory that is scored whole.

    python -m recipes.swbd.rt03 --corpus LDC2007S10 --out data/rt03

Utterances are the segments of the stm (``data/references/eval03/english/cts/*.stm``) between the gaps; none is left out. The
glm is ``en20030506.glm``; channels 1 and 2 of the stm become sides A and B.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from local.cli import RecipeError, run
from local.datadir import DataDir
from recipes.swbd import evalset
from recipes.swbd.corpus import find_files

KNOWN = {"all": (8420, 76_157)}
KNOWN_SIDES = 144
_PART = ("eval03", "english", "cts")
GLM = r"en20030506\.glm"
AUDIO = r"((?:sw|fsh)_\d+)\.(?:sph|wav|flac)"


def prepare(root: Path) -> tuple[DataDir, str, str]:
    """Prepare the set; return it, the text of its stm, and of its glm.

    :raises RecipeError: for missing files, a call without audio, a side that is missing, or a segment past the audio.
    """
    stms = [path for path in sorted(root.rglob("*")) if path.suffix.lower() == ".stm" and _of_the_part(path, root)]
    if not stms:
        raise RecipeError(f"{root}: no stm in a folder {'/'.join(_PART)} below; expected LDC2007S10")
    stm, texts, ignored = evalset.read_stm(stms)
    rules = evalset.find(root, GLM, "glm")
    glm = evalset.read_glm(rules)
    evalset.read_reference(stm, glm, (" + ".join(path.name for path in stms), rules.name))  # an error names the user's file
    sound = find_files([root], AUDIO, "LDC2007S10 with its sw_NNNNN.sph and fsh_NNNNN.sph")
    segments = sorted({*texts, *ignored})
    if unscored := sorted({call.lower() for call in sound} - {segment.call.lower() for segment in segments}):
        print(f"warning: rt03: {len(unscored)} calls have audio but no reference: {', '.join(unscored[:10])}", file=sys.stderr)
    return evalset.prepare("rt03", segments, texts, {call.lower(): path for call, path in sound.items()}), stm, glm


def _of_the_part(path: Path, root: Path) -> bool:
    folders = [part.lower() for part in path.relative_to(root).parts[:-1]]
    return set(_PART) <= set(folders)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, stm, glm = prepare(arguments.corpus)
    evalset.write("rt03", data, stm, glm, KNOWN, KNOWN_SIDES, arguments.out)


if __name__ == "__main__":
    run(main)
