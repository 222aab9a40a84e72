"""Look at a user's discs: which corpora they hold, what is missing, and what to put into the configuration.

    python -m recipes.swbd.doctor FOLDER [FOLDER ...] [--out my.yaml]

Only names are looked at, and the header of one audio file of each corpus. Exits with 1 where a corpus that the recipe cannot
do without (Switchboard-1, Hub5'00) is not whole.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from tqdm import tqdm

from local import audio
from local.cli import RecipeError, run
from local.files import write_text
from recipes.swbd import callhome, eval2000, fisher, rt03, swbd1

_SHOWN = 5  # names of missing calls


@dataclass(frozen=True)
class Part:
    """One thing to be found: files of a name, so many, under a key of the configuration."""

    corpus: str
    key: str
    what: str
    pattern: str  # of file names; its first group tells one call from another
    known: tuple[int, ...]  # empty: any number
    needed: bool = False
    folder: str = ""  # a part of the path, to tell files of one name apart
    several: bool = False  # the configuration takes a list


PARTS = (
    Part("swbd1", "audio", "Switchboard-1 audio, LDC97S62", swbd1.AUDIO, swbd1.KNOWN["calls"], True, several=True),
    Part("swbd1", "transcripts", "ISIP transcripts of Switchboard-1", swbd1.TRANSCRIPT, (4870, 4876), True),
    Part("swbd1", "transcripts", "dictionary of the ISIP transcripts", r"(sw-ms98-dict)\.text", (1,), True),
    Part("swbd1", "persons", "tables of persons of LDC97S62", swbd1.TABLES, (2,)),
    Part("eval2000", "audio", "Hub5'00 audio, LDC2002S09", eval2000.AUDIO, (40,), True),
    Part("eval2000", "audio", "Hub5'00 segments (pem)", rf"({eval2000.PEM})", (1,), True),
    Part("eval2000", "text", "Hub5'00 reference (stm), LDC2002T43", rf"({eval2000.STM})", (1,), True),
    Part("eval2000", "text", "Hub5'00 scoring rules (glm)", rf"({eval2000.GLM})", (1,), True),
    Part("fisher", "audio", "Fisher audio, LDC2004S13 and LDC2005S13", fisher.AUDIO, (11_699,), several=True),
    Part("fisher", "transcripts", "Fisher transcripts, LDC2004T19 and LDC2005T19", fisher.TRANSCRIPT, (11_699,), several=True),
    Part("callhome", "audio", "CallHome audio, LDC97S42", callhome.AUDIO, (120,), several=True),
    Part("callhome", "transcripts", "CallHome transcripts, LDC97T14", callhome.TRANSCRIPT, (120,), several=True),
    Part("rt03", "corpus", "RT-03 audio, LDC2007S10", rt03.AUDIO, (72,), folder="cts"),
    Part("rt03", "corpus", "RT-03 reference (stm)", r"(.*)\.stm", (), folder="cts"),
    Part("rt03", "corpus", "RT-03 scoring rules (glm)", rf"({rt03.GLM})", (1,)),
)


@dataclass
class Finding:
    """What was found of a part: the files by call, and calls that stand there twice."""

    part: Part
    files: dict[str, Path] = field(default_factory=dict)
    twice: list[tuple[Path, Path]] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether there is all that is known; of what comes in any number, something."""
        return (len(self.files) in self.part.known if self.part.known else bool(self.files)) and not self.twice


def look(roots: Sequence[Path]) -> list[Finding]:
    """Walk the folders and sort what is there.

    :raises RecipeError: for a folder that does not exist.
    """
    findings = [Finding(part) for part in PARTS]
    paths = list(tqdm(_walk(roots), desc="looking", unit="file", mininterval=2))
    hub5 = [path.parent for path in paths if re.fullmatch(eval2000.PEM, path.name, re.IGNORECASE)]
    for finding in findings:
        name = re.compile(finding.part.pattern, re.IGNORECASE)
        for path in paths:
            match = name.fullmatch(path.name)
            if not match or not _belongs(finding.part, path, hub5):
                continue
            key = match[1].upper()
            if key in finding.files:
                finding.twice.append((finding.files[key], path))
            else:
                finding.files[key] = path
    return findings


def _walk(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        if not root.is_dir():
            raise RecipeError(f"{root}: no such folder")
        for folder, folders, names in os.walk(root.resolve(), followlinks=True):
            folders.sort()
            yield from (Path(folder) / name for name in sorted(names))


def _belongs(part: Part, path: Path, hub5: Sequence[Path]) -> bool:
    """Whether a file of this name is this part's: ``en_4156.sph`` is Hub5'00's beside its pem, CallHome's elsewhere."""
    if part.pattern not in (swbd1.AUDIO, eval2000.AUDIO, callhome.AUDIO, rt03.AUDIO) and not part.folder:
        return True
    if "cts" in (name.lower() for name in path.parts[:-1]):
        return part.folder == "cts"
    return not part.folder and any(path.is_relative_to(folder) for folder in hub5) == (part.corpus == "eval2000")


def report(findings: Sequence[Finding]) -> list[str]:
    """A line for each part, and what to do about those that are not whole."""
    lines = []
    for finding in findings:
        part, count = finding.part, len(finding.files)
        known = f"{part.known[0]}" if part.known else "any"
        mark = "whole" if finding.whole else "NOT WHOLE" if count else "missing" if part.needed else "not there (optional)"
        lines.append(f"{part.what:<48} {count:>6} of {known:<10} {mark}")
        if count and "audio" in part.what:
            lines += _headers(next(iter(finding.files.values())))
        for first, second in finding.twice[:_SHOWN]:
            lines.append(f"    twice: {first} and {second}; the recipe will stop: leave one out")
    lines += _unpaired(findings, "swbd1") + _unpaired(findings, "fisher") + _unpaired(findings, "callhome")
    return lines


def _headers(path: Path) -> list[str]:
    try:
        info = audio.info(path)
    except RecipeError as error:
        return [f"    the first file cannot be used: {error}"]
    return [f"    {path.name}: {info.channels} channels, {info.num_samples / info.sample_rate:.1f} s"]


def _unpaired(findings: Sequence[Finding], corpus: str) -> list[str]:
    """Calls with audio and no transcript, and the other way round; a call's number is its first four or five digits."""
    calls = {
        finding.part.key: {re.sub(r"[AB]$", "", key) for key in finding.files}
        for finding in findings
        if finding.part.corpus == corpus and finding.part.key in ("audio", "transcripts") and finding.part.known != (1,)
    }
    if not all(calls.values()):
        return []
    pairs = [("audio", "transcripts"), ("transcripts", "audio")]
    return [
        f"{corpus}: {len(only)} calls have {one} but no {other}: {', '.join(only[:_SHOWN])}"
        for one, other in pairs
        if (only := sorted(calls[one] - calls[other]))
    ]


def configuration(findings: Sequence[Finding]) -> dict[str, dict[str, object]]:
    """The section ``corpora`` that says where everything found lies; optional corpora only where they can be used."""
    corpora: dict[str, dict[str, object]] = {}
    for corpus, key in dict.fromkeys((finding.part.corpus, finding.part.key) for finding in findings):
        mine = [finding for finding in findings if (finding.part.corpus, finding.part.key) == (corpus, key)]
        others = [path for finding in findings if finding not in mine for path in finding.files.values()]
        if paths := [path for finding in mine for path in finding.files.values()]:
            corpora.setdefault(corpus, {})[key] = _folders(paths, others if mine[0].part.several else [])
    needs = {"fisher": {"transcripts"}, "callhome": {"audio", "transcripts"}}
    return {name: section for name, section in corpora.items() if needs.get(name, set()) <= set(section)}


def _folders(paths: Sequence[Path], others: Sequence[Path]) -> str | list[str]:
    """The folder that holds all the files or, where it holds ``others`` too, the folders in it that do not."""
    top = Path(os.path.commonpath([path.parent for path in paths]))
    if not any(path.is_relative_to(top) for path in others):
        return str(top)
    discs: dict[str, list[Path]] = {}
    for path in paths:
        discs.setdefault(path.relative_to(top).parts[0], []).append(path.parent)
    return [os.path.commonpath(group) for group in discs.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help="write the configuration there, for snakemake --configfile")
    arguments = parser.parse_args()
    findings = look(arguments.folders)
    print("\n".join(report(findings)))
    corpora = configuration(findings)
    text = yaml.safe_dump({"corpora": corpora}, sort_keys=False) if corpora else "# nothing found\n"
    print(f"\nFor the configuration (snakemake --configfile my.yaml):\n\n{text}")
    if arguments.out:
        write_text(arguments.out, text)
    lacking = [finding.part.what for finding in findings if finding.part.needed and not finding.files]
    if lacking:
        raise RecipeError(f"the recipe needs what was not found: {'; '.join(lacking)}. Give the folders that hold it")
    if not all(finding.whole for finding in findings if finding.part.needed):
        print("warning: what is needed is there, but not all of it is the known size", file=sys.stderr)


if __name__ == "__main__":
    run(main)
