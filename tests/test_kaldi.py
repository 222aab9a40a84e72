"""What Kaldi has made, in place of the stage 'align': its forms, and what does not fit."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import kaldiio
import numpy as np
import pytest

from local import kaldi
from local.cli import RecipeError
from local.datadir import DataDir
from local.files import read_archive
from tests.hmm.planted import PlantedCorpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PlantedCorpus:
    return PlantedCorpus(tmp_path_factory.mktemp("planted"), utterances=24)


@pytest.fixture
def alignments(corpus: PlantedCorpus) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(4)
    return {key: draw.integers(0, 9, frames).astype(np.int32) for key, frames in corpus.frames.items()}


def take(corpus: PlantedCorpus, folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    arguments = ["alignment", "--data", corpus.data, "--folder", folder, "--out", out]
    monkeypatch.setattr(sys, "argv", ["kaldi", *map(str, arguments)])
    kaldi.main()
    return json.loads((out / "stats.json").read_text())


@pytest.mark.parametrize("form", ["scp", "arks", "text"])
def test_pdf_ids_in_kaldis_archives(
    corpus: PlantedCorpus, alignments: dict, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tri4_ali"
    folder.mkdir()
    of_others = {"sw09999-A_000000": np.array([11, 3], np.int32)}  # of a set that is not asked for, with the highest pdf-id
    if form == "scp":
        kaldiio.save_ark(str(folder / "a.ark"), alignments | of_others, scp=str(folder / "ali.scp"))
    else:
        for number in range(3):
            part = {key: value for place, (key, value) in enumerate((alignments | of_others).items()) if place % 3 == number}
            kaldiio.save_ark(str(folder / f"ali_pdf.{number}.ark"), part, text=form == "text")
    stats = take(corpus, folder, tmp_path / "out", monkeypatch)
    assert stats == {"utterances": 24, "failed": [], "frames": sum(corpus.frames.values()), "num_pdfs": 12}
    taken = read_archive(tmp_path / "out" / "ali.scp", expected=corpus.frames)
    assert "sw09999-A_000000" not in taken
    for key, pdf_ids in alignments.items():
        np.testing.assert_array_equal(taken[key], pdf_ids)


def write_tool(folder: Path, name: str, code: str) -> None:
    """A stand-in for a program of Kaldi's."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!{sys.executable}\n{code}")
    (folder / name).chmod(0o755)


ALI_TO_PDF = """
import subprocess, sys
import kaldiio
model, source, target = sys.argv[1:]
assert open(model).read() == "a model" and source.startswith("ark:") and source.endswith("|") and target == "ark:-"
found = subprocess.run(source[4:-1], shell=True, capture_output=True, check=True).stdout
import io
pdfs = {key: (ids - 1) // 2 for key, ids in kaldiio.load_ark(io.BytesIO(found))}
with kaldiio.WriteHelper("ark:/dev/stdout") as writer:
    for key, ids in pdfs.items():
        writer(key, ids.astype("int32"))
"""


def test_transition_ids_go_through_kaldis_own_tools(
    corpus: PlantedCorpus, alignments: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tri 4"
    folder.mkdir()
    keys = list(alignments)
    for number, some in enumerate((keys[:10], keys[10:]), 1):
        kaldiio.save_ark(str(tmp_path / "ali"), {key: 2 * alignments[key] + 1 for key in some})
        (folder / f"ali.{number}.gz").write_bytes(gzip.compress((tmp_path / "ali").read_bytes()))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(RecipeError, match=r"ali-to-pdf of Kaldi is needed to read ali\.\*\.gz and is not in PATH"):
        take(corpus, folder, tmp_path / "out", monkeypatch)
    write_tool(tmp_path / "bin", "ali-to-pdf", ALI_TO_PDF)
    write_tool(tmp_path / "bin", "hmm-info", "print('number of phones 5')\nprint('number of pdfs 40')")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(RecipeError, match=r"no final\.mdl beside ali\.\*\.gz"):
        take(corpus, folder, tmp_path / "out", monkeypatch)
    (folder / "final.mdl").write_text("a model")
    assert take(corpus, folder, tmp_path / "out", monkeypatch)["num_pdfs"] == 40
    taken = read_archive(tmp_path / "out" / "ali.scp", expected=corpus.frames)
    for key, pdf_ids in alignments.items():
        np.testing.assert_array_equal(taken[key], pdf_ids)
    write_tool(tmp_path / "bin", "ali-to-pdf", "raise SystemExit(3)")
    with pytest.raises(RecipeError, match="ali-to-pdf ended with code 3"):
        take(corpus, folder, tmp_path / "out", monkeypatch)


def test_alignments_that_do_not_fit_are_refused(
    corpus: PlantedCorpus, alignments: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecipeError, match="expected alignments"):
        take(corpus, tmp_path / "empty", tmp_path / "out", monkeypatch)
    (tmp_path / "few").mkdir()
    kaldiio.save_ark(str(tmp_path / "few" / "a.ark"), {key: alignments[key] for key in list(alignments)[2:]})
    with pytest.raises(RecipeError, match="2 of 24 utterances have no alignment"):
        take(corpus, tmp_path / "few", tmp_path / "out", monkeypatch)
    (tmp_path / "posteriors").mkdir()
    kaldiio.save_ark(str(tmp_path / "posteriors" / "a.ark"), {"u": np.zeros((3, 2), np.float32)})
    with pytest.raises(RecipeError, match=r"utterance u: expected a vector of pdf-ids, found float32 \(3, 2\)"):
        take(corpus, tmp_path / "posteriors", tmp_path / "out", monkeypatch)
    assert not (tmp_path / "out" / "ali.scp").exists()


def test_fmllr_features_are_found_in_all_folders(
    corpus: PlantedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = list(corpus.frames)
    folders = []
    for name, some in (("train", keys[:20]), ("dev", keys[20:])):
        folder = tmp_path / name
        folder.mkdir()
        features = {key: np.full((corpus.frames[key], 40), len(key), np.float32) for key in some}
        kaldiio.save_ark(str(folder / "f.ark"), features, scp=str(folder / "feats.scp"))
        folders.append(str(folder))
    out = tmp_path / "out" / "feats.scp"
    arguments = ["kaldi", "features", "--data", str(corpus.data), "--out", str(out), "--folders"]
    monkeypatch.setattr(sys, "argv", [*arguments, *folders])
    kaldi.main()
    taken = read_archive(out, expected=DataDir.read(corpus.data).utterances)
    assert {key: len(taken[key]) for key in keys} == corpus.frames
    monkeypatch.setattr(sys, "argv", [*arguments, folders[0]])
    with pytest.raises(RecipeError, match="4 of 24 utterances have no fMLLR features"):
        kaldi.main()
    monkeypatch.setattr(sys, "argv", [*arguments, str(tmp_path)])
    with pytest.raises(RecipeError, match=r"no feats\.scp"):
        kaldi.main()
