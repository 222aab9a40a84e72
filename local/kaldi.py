"""Alignments and fMLLR features that Kaldi has made, in place of the stage 'align'.

    python -m local.kaldi alignment --data data/train --folder exp/tri4_ali_nodup --out align/network/train
    python -m local.kaldi features --data data/train --folders data-fmllr-tri4/train_nodup ... --out fmllr/train/feats.scp

Alignments are ``ali.scp`` or ``*.ark`` of pdf-ids (Kaldi's ``ali-to-pdf``); or ``ali.*.gz`` of transition-ids beside their
``final.mdl``, which Kaldi's own tools must turn into pdf-ids.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import kaldiio
import numpy as np

from local.cli import RecipeError, run
from local.datadir import DataDir
from local.files import write_archive, write_text
from local.hmm.align import check_share


def pdf_ids_in(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """The alignments in a folder: utterance id and pdf-ids ``(frames,)``.

    :raises RecipeError: where there are none, Kaldi's tools are needed and missing, or they fail.
    """
    if (folder / "ali.scp").exists():
        yield from kaldiio.load_scp_sequential(str(folder / "ali.scp"))
    elif arks := sorted(folder.glob("*.ark")):
        for ark in arks:
            yield from kaldiio.load_ark(str(ark))
    elif zipped := sorted(folder.glob("ali.*.gz")):
        source = "ark:gunzip -c " + " ".join(shlex.quote(str(path)) for path in zipped) + " |"
        with subprocess.Popen([_tool("ali-to-pdf"), _model(folder), source, "ark:-"], stdout=subprocess.PIPE) as process:
            yield from kaldiio.load_ark(process.stdout)
        if process.returncode:
            raise RecipeError(f"{folder}: ali-to-pdf ended with code {process.returncode}; its message is above")
    else:
        raise RecipeError(f"{folder}: expected alignments: ali.scp, *.ark of pdf-ids or ali.*.gz; found none")


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise RecipeError(
            f"{name} of Kaldi is needed to read ali.*.gz and is not in PATH; source your path.sh first, or give pdf-ids as "
            "ali.scp: ali-to-pdf final.mdl 'ark:gunzip -c ali.*.gz|' ark,scp:ali.ark,ali.scp"
        )
    return path


def _model(folder: Path) -> str:
    if not (folder / "final.mdl").exists():
        raise RecipeError(f"{folder}: no final.mdl beside ali.*.gz, which belong to it")
    return str(folder / "final.mdl")


def num_pdfs_of(folder: Path, highest: int) -> int:
    """How many pdfs the alignments' model has: what hmm-info says of its final.mdl; else those that occur, ``highest + 1``."""
    if not (folder / "final.mdl").exists() or shutil.which("hmm-info") is None:
        print(
            f"warning: {folder}: the pdfs are counted by the highest pdf-id, {highest}; with final.mdl there and Kaldi's "
            "hmm-info in PATH they would be the model's",
            file=sys.stderr,
        )
        return highest + 1
    said = subprocess.run(["hmm-info", _model(folder)], capture_output=True, text=True, check=True).stdout
    found = re.search(r"number of pdfs (\d+)", said)
    if found is None:
        raise RecipeError(f"{folder}/final.mdl: expected 'number of pdfs N' from hmm-info, found {said!r}")
    return int(found[1])


def take_alignment(data: DataDir, folder: Path, out: Path) -> None:
    """Write ``ali.scp`` and ``stats.json`` of the set's utterances, as the stage 'align' does.

    :raises RecipeError: where more than 5 % have none, or it is not a vector of pdf-ids.
    """
    highest = -1
    taken: dict[str, np.ndarray] = {}
    for key, pdf_ids in pdf_ids_in(folder):
        if pdf_ids.ndim != 1 or not np.issubdtype(pdf_ids.dtype, np.integer) or (len(pdf_ids) and pdf_ids.min() < 0):
            raise RecipeError(f"{folder}: utterance {key}: expected a vector of pdf-ids, found {pdf_ids.dtype} {pdf_ids.shape}")
        highest = max(highest, int(pdf_ids.max(initial=-1)))  # over all utterances: sets share the pdfs
        if key in data.utterances:
            taken[key] = pdf_ids.astype(np.int32)
    failed = sorted(set(data.utterances) - set(taken))
    check_share(len(failed), len(data.utterances), failed, f"have no alignment in {folder}")
    write_archive(out / "ali.scp", sorted(taken.items()))
    stats = {
        "utterances": len(taken),
        "failed": failed,
        "frames": sum(map(len, taken.values())),
        "num_pdfs": num_pdfs_of(folder, highest),
    }
    write_text(out / "stats.json", json.dumps(stats) + "\n")


def take_features(data: DataDir, folders: Sequence[Path], out: Path) -> None:
    """Index the set's fMLLR features from the folders' ``feats.scp``.

    :raises RecipeError: for a folder without one, or where more than 5 % of the utterances have no features.
    """
    lines: dict[str, str] = {}
    for folder in folders:
        if not (folder / "feats.scp").exists():
            raise RecipeError(f"{folder}: no feats.scp; expected folders of fMLLR features (make_fmllr_feats.sh)")
        for line in (folder / "feats.scp").read_text(encoding="utf-8").splitlines():
            key, _, place = line.partition(" ")
            if key in data.utterances:
                lines[key] = place
    missing = sorted(set(data.utterances) - set(lines))
    check_share(len(missing), len(data.utterances), missing, "have no fMLLR features")
    write_text(out, "".join(f"{key} {lines[key]}\n" for key in sorted(lines)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    alignment = commands.add_parser("alignment", help="pdf-ids of a set")
    alignment.add_argument("--folder", type=Path, required=True)
    features = commands.add_parser("features", help="fMLLR features of a set")
    features.add_argument("--folders", type=Path, nargs="+", required=True)
    for command in (alignment, features):
        command.add_argument("--data", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = DataDir.read(arguments.data)
    if arguments.command == "alignment":
        take_alignment(data, arguments.folder, arguments.out)
    else:
        take_features(data, arguments.folders, arguments.out)


if __name__ == "__main__":
    run(main)
