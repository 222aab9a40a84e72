"""The embedded corpus: the same bytes for the same seed, and what the recipe and NIST's tools need of it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from local.cli import from_mapping
from local.score.__main__ import as_json
from local.score.wer import Reference
from recipes.swbd.dictionary import read_msu
from recipes.swbd.embedded import text
from recipes.swbd.embedded.__main__ import EmbeddedConf, make, plan_all
from recipes.swbd.eval2000 import prepare as prepare_eval2000
from recipes.swbd.swbd1 import KNOWN
from recipes.swbd.swbd1 import prepare as prepare_swbd1


def _make(folder: Path, seed: int) -> Path:
    folder.mkdir()
    make(EmbeddedConf(seed, 3.0, 1.0, 2), folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _make(tmp_path_factory.mktemp("embedded") / "corpus", 1)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def test_the_same_seed_gives_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    assert _digest(_make(tmp_path / "again", 1)) == _digest(corpus)
    assert _digest(_make(tmp_path / "other", 2)) != _digest(corpus)


def test_at_least_thirty_voices_speak_and_three_hundred_words_are_known(root: Path) -> None:
    conf = yaml.safe_load((root / "recipes/swbd/mini.yaml").read_text())["embedded"]
    voices, train, sw, en = plan_all(from_mapping(EmbeddedConf, conf, "embedded"))
    used = [{voices[number].name for call in calls for number in call.voices} for calls in (train, sw, en)]
    assert len(used[0] | used[2]) >= 30
    assert used[1] <= used[0]
    assert not used[2] & used[0]
    assert all(a != b for calls in (train, sw, en) for a, b in (call.voices for call in calls))
    assert len(text.vocabulary()) >= 300


def test_the_recipes_own_code_reads_it(corpus: Path) -> None:
    data, about = prepare_swbd1([corpus / "LDC97S62"], corpus / "swb_ms98_transcriptions").finish(KNOWN)
    assert not about["dropped"]
    assert 2 * 60 < sum(u.end - u.start for u in data.utterances.values()) < 5 * 60
    lexicon = read_msu(corpus / "swb_ms98_transcriptions" / "sw-ms98-dict.text")
    known = set(lexicon) | {"[laughter]", "[noise]", "[vocalized-noise]"} | set(text._NAMES) | set(text._COINED)
    assert {word for u in data.utterances.values() for word in u.words} <= known
    test, _, _ = prepare_eval2000(corpus / "LDC2002S09", corpus / "LDC2002T43")
    assert {r.file[:2] for r in test.recordings.values()} == {"sw", "en"}
    assert not {u.words for u in data.utterances.values() if len(u.words) > 4} & {
        u.words for u in test.utterances.values() if len(u.words) > 4
    }


def test_speech_is_where_the_truth_says_and_on_its_own_side(corpus: Path) -> None:
    words = [line.split() for line in (corpus / "truth" / "words.ctm").read_text().splitlines()]
    call = words[0][0]
    samples, rate = soundfile.read(corpus / "LDC97S62/swb1_d1/data" / f"{call}.sph")
    assert (rate, samples.shape[1]) == (8000, 2)
    for side in range(2):
        spoken = np.zeros(len(samples), bool)
        for file, letter, start, duration, _ in words:
            if (file, letter) == (call, "AB"[side]):
                spoken[round(float(start) * rate) : round((float(start) + float(duration)) * rate)] = True
        power = samples[:, side] ** 2
        assert power[spoken].mean() > 20 * power[~spoken].mean()
    phones = (corpus / "truth" / "phones.ctm").read_text().splitlines()
    assert len(phones) > 3 * len(words)


def test_its_text_gives_every_rule_work() -> None:
    rng = np.random.default_rng(1)
    written = " ".join(token.written for _ in range(600) for token in text.sentence(rng))
    marks = [r"\[laughter-\w", r"\[it'n/isn't\]", r"\{\w+\}", r"\w-( |$)", r"_1", r"<b_aside>", r"\[noise\]", r"\[laughter\]"]
    for pattern in marks:
        assert re.search(pattern, written), pattern
    assert re.search(r"I\.B\.M\.", written)
    assert re.search(r"\b(uh|um)\b", written)


def test_a_perfect_recogniser_makes_no_error(corpus: Path, tmp_path: Path) -> None:
    """The stm, the glm and the truth agree: the spoken words, as the recipe writes them, score 0 %."""
    from recipes.swbd.text import map_word

    reference = corpus / "LDC2002T43/2000_hub5_eng_eval_tr/reference"
    lines = []
    for row in (corpus / "truth" / "words.ctm").read_text().splitlines():
        file, side, start, duration, written = row.split()
        word = map_word(written)
        if "_" in file and word is not None:
            lines.append(f"{file} {side} {start} {duration} {word}\n")
    (tmp_path / "hyp.ctm").write_text("".join(lines))
    result = Reference(reference / "hub5e00.english.000405.stm", reference / "en20000405_hub5.glm").score(tmp_path / "hyp.ctm")
    assert as_json(result.total(), (0, 0))["wer"] < 1.0
