"""Looking into an alignment: the table adds up, pictures show every label, the page says what the files say."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from local.adaptation.linear import identity_transform
from local.cli import RecipeError
from local.datadir import DataDir
from local.features import FeatureSet
from local.files import read_archive, write_archive, write_text
from local.hmm import __main__ as looking
from local.hmm import page
from local.hmm.align import gmm_input
from local.hmm.model import HmmModel
from local.hmm.pictures import Span, aligned_picture, utterance_pictures
from local.lexicon import Lang
from tests.hmm.planted import PlantedCorpus, random_model

DIMS = 15  # of the planted features with deltas


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PlantedCorpus:
    made = PlantedCorpus(tmp_path_factory.mktemp("show"), 24)
    for ending in ("", "_cmvn"):
        write_archive(made.feats / f"fbank{ending}.scp", sorted(read_archive(made.feats / f"mfcc{ending}.scp").items()))
    return made


@pytest.fixture(scope="module")
def model(corpus: PlantedCorpus) -> HmmModel:
    return random_model(Lang.read(corpus.lang), 3, 1, DIMS)


def shown(corpus: PlantedCorpus, model: HmmModel, key: str, transforms: dict[str, torch.Tensor] | None = None) -> looking.Shown:
    return looking.show(model, Lang.read(corpus.lang), DataDir.read(corpus.data), corpus.feats, key, transforms)


def test_the_table_adds_up(corpus: PlantedCorpus, model: HmmModel) -> None:
    key = max(corpus.words, key=lambda key: len(corpus.words[key]))
    found = shown(corpus, model, key)
    head, *rows = found.table()
    assert len(head) == len(rows[0])
    assert [row[0] for row in rows if row[0] not in ("", "-")] == [word for word, *_ in corpus.words[key]]
    assert all((row[0] == "-") == (row[1] == "sil") for row in rows)
    lengths = [float(row[3]) for row in rows]
    assert [float(row[2]) for row in rows] == pytest.approx(np.cumsum([0, *lengths])[:-1], abs=1e-6)
    assert round(100 * sum(lengths)) == corpus.frames[key]
    counted = Counter(found.alignment.pdf_ids.tolist())
    pairs = [part.split(" (") for row in rows for part in row[5].rstrip(")").split(") ")]
    assert sum((Counter({int(pdf): int(n)}) for pdf, n in pairs), Counter()) == counted
    data = DataDir.read(corpus.data)
    x = gmm_input(FeatureSet(corpus.feats, "mfcc", data.utt2side)[key], None)
    fit = model.log_likelihoods(x).numpy()[np.arange(len(x)), found.alignment.pdf_ids]
    np.testing.assert_allclose(found.fit, fit, rtol=1e-5)
    weighted = sum(float(row[4]) * round(100 * length) for row, length in zip(rows, lengths, strict=True))
    assert weighted / len(x) == pytest.approx(fit.mean(), abs=0.01)


def test_speaker_transforms(corpus: PlantedCorpus) -> None:
    lang = Lang.read(corpus.lang)
    adapted = random_model(lang, 3, 2, DIMS)
    key = next(iter(corpus.words))
    speaker = key.split("_")[0]
    with pytest.raises(RecipeError, match="not adapted to speakers; leave --transforms out"):
        shown(corpus, adapted, key, {})
    own = shown(corpus, adapted, key)
    adapted.unadapted = random_model(lang, 3, 3, DIMS).gmm
    first_pass = shown(corpus, adapted, key)
    assert not np.allclose(first_pass.fit, own.fit)  # the unadapted mixtures'
    same = shown(corpus, adapted, key, {speaker: identity_transform(DIMS).float()})
    np.testing.assert_allclose(same.fit, own.fit, rtol=1e-5)
    moved = identity_transform(DIMS).float()
    moved[:, -1] = 1.0
    assert not np.allclose(shown(corpus, adapted, key, {speaker: moved}).fit, own.fit)
    with pytest.raises(RecipeError, match=f"none of speaker {speaker}"):
        shown(corpus, adapted, key, {"sw09999-A": moved})


def test_an_unknown_utterance_names_its_like(corpus: PlantedCorpus, model: HmmModel) -> None:
    with pytest.raises(RecipeError, match=r"no utterance sw02001-A_00000 .*did you mean 'sw02001-A_00000\d'"):
        shown(corpus, model, "sw02001-A_00000")
    with pytest.raises(RecipeError, match=r"no utterance foo .*known: sw02001-A_000000"):
        shown(corpus, model, "foo")


def test_the_command_says_when_it_aligns_unadapted(
    corpus: PlantedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    adapted = random_model(Lang.read(corpus.lang), 3, 2, DIMS)
    adapted.unadapted = adapted.gmm
    adapted.save(tmp_path / "model.pt")
    write_archive(tmp_path / "fmllr.scp", (("sw02001-A", identity_transform(DIMS).float().numpy()),))
    arguments = [
        "show",
        "--model",
        tmp_path / "model.pt",
        "--data",
        corpus.data,
        "--feats",
        corpus.feats,
        "--lang",
        corpus.lang,
    ]
    for extra, warned in ((["--picture", tmp_path / "a.svg"], True), (["--transforms", tmp_path / "fmllr.scp"], False)):
        monkeypatch.setattr(sys, "argv", [*map(str, ["hmm", *arguments, "sw02001-A_000000", *extra])])
        looking.main()
        out = capsys.readouterr().out
        assert ("without --transforms" in out) == warned
        assert "log-likelihood a frame" in out
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


def test_a_picture_has_every_label() -> None:
    words = [Span("so", 0.1, 0.4)]
    phones = [Span("sil", 0.0, 0.1), Span("s", 0.1, 0.2), Span("ow", 0.2, 0.4)]
    picture = aligned_picture(np.zeros((40, 24), np.float32), words, phones, "sw02001-A_000000")
    for label in ("so", "sil", "s", "ow", "sw02001-A_000000"):
        assert f"<!-- {label} -->" in picture  # matplotlib's comment on a text that it draws as paths


def test_quantiles_are_numpys() -> None:
    draw = np.random.default_rng(1)
    for size in (1, 2, 10, 101):
        values = draw.integers(1, 9, size)
        expected = np.quantile(values, (0.1, 0.5, 0.9), method="inverted_cdf").tolist()
        assert page.quantiles(Counter(values.tolist()), (0.1, 0.5, 0.9)) == expected


def test_the_page(model: HmmModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {
        "utterances": 24,
        "failed": ["sw02001-A_x"],
        "frames": 2500,
        "log_likelihood": -5000.0,
        "durations": {"a": [[3, 10], [30, 1]], "sil": [[100, 2], [40, 1]]},
    }
    write_text(tmp_path / "15" / "alignment.json", json.dumps(stats))
    log = [
        {"iteration": i, "log_likelihood_per_frame": -20.0 + i, "frames": 2500, "gaussians": 60, "realigned": i == 2}
        for i in (1, 2, 3)
    ]
    write_text(tmp_path / "15" / "log.jsonl", "".join(json.dumps(line) + "\n" for line in log))
    model.save(tmp_path / "15" / "model.pt")
    durations = {phone: Counter(dict(counts)) for phone, counts in stats["durations"].items()}
    rows = dict(page.summary(model, log, stats, durations)[1:])
    assert rows["frames of silence and noise"] == "80.0 %"  # 240 of 300
    assert rows["not aligned"] == "1: sw02001-A_x"
    assert rows["log-likelihood a frame, of the best paths"] == "-2.00"
    every = model.num_pdfs
    assert rows["tied states"] == f"{every}; by frames in training: {every} below 50, {every} below 100"
    monkeypatch.setattr(sys, "argv", ["page", "--folder", str(tmp_path / "15"), "--out", str(tmp_path / "page.html")])
    page.main()
    html = (tmp_path / "page.html").read_text()
    assert html.count("<svg") == 3
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*', html) == []  # nothing to be fetched


def test_pictures_of_utterances_of_median_length(corpus: PlantedCorpus, tmp_path: Path) -> None:
    data = DataDir.read(corpus.data)
    words, phones = [], []
    for key, frames in corpus.frames.items():
        utterance = data.utterances[key]
        words += [f"sw02001 A {utterance.start + first / 100:.2f} {n / 100:.2f} {w}\n" for w, first, n in corpus.words[key]]
        phones.append(f"sw02001 A {utterance.start:.2f} {frames / 100:.2f} sil\n")
    write_text(tmp_path / "words.ctm", "".join(words))
    write_text(tmp_path / "phones.ctm", "".join(phones))
    write_archive(tmp_path / "ali.scp", ((key, np.zeros(n, np.int32)) for key, n in sorted(corpus.frames.items())))
    pictures = utterance_pictures(tmp_path, data, corpus.feats)
    assert len(pictures) == 2  # of each of the two sides one
    lengths = {key: data.utterances[key].end - data.utterances[key].start for key in data.utterances}
    median = float(np.median(list(lengths.values())))
    nearest = min(sorted(lengths), key=lambda key: abs(lengths[key] - median))
    assert f"<!-- {nearest} -->" in pictures[0]
