"""Decoding frames whose words and times are known; joining jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from local.adaptation import speakers
from local.adaptation.linear import apply, identity_transform
from local.cli import RecipeError
from local.datadir import DataDir, Recording, Utterance
from local.decode import DecodeConf, Recognizer, Stats, join, read_graph, search_job, word_times
from local.files import read_archive
from local.fst import FstArrays
from local.graph import GraphConf, build
from local.hmm.align import Aligner
from local.hmm.gmm import Gmm
from local.hmm.model import HmmModel
from local.hmm.tree import monophone_tree
from local.lattice import Lattice, Point
from local.lexicon import Lang
from local.lm import Arpa
from local.lm.grammar import to_acceptor
from local.search import BeamSearch, SearchConf, StateLattice
from tests.graph.toy import ARPA, write_lang

CONF = DecodeConf(
    beam=40.0,
    max_active=1000,
    lattice_beam=8.0,
    acoustic_scale=0.5,
    time_limit=1000.0,
    acoustic_scales=(0.5, 1.0),
    insertion_penalties=(0.0,),
    device="cpu",
)
BEST = Point(0.5, 0.0)
# an HMM state lasts two frames: speech six a phone, silence ten
SPOKEN = {
    "sw01-A_000000-000100": "sil y z y z sil",
    "sw01-B_000050-000150": "x y z x y z",
    "sw02-A_000000-000100": "sil",
    "sw02-B_000000-000001": None,  # too short for a frame
}


def make_model(lang: Lang) -> HmmModel:
    """Monophones with a Gaussian for every state, each in a dimension of its own."""
    states = {phone: 5 if name in lang.silence_phones else 3 for name, phone in lang.phones.items()}
    tree = monophone_tree(states)
    count = tree.num_pdfs
    means = 6 * torch.eye(count)
    gmm = Gmm(torch.ones(count), means, torch.ones(count, count), torch.ones(count, dtype=torch.int64))
    occupancy = torch.ones(count, dtype=torch.float64)
    model = HmmModel(lang.phones, lang.silence_phones, lang.topology, tree, torch.zeros(0), gmm, occupancy)
    model.transitions = model.initial_transitions()
    return model


def make_data() -> DataDir:
    recordings, utterances = {}, {}
    for key in SPOKEN:
        recording, times = key.split("_")
        start, end = (int(time) / 100 for time in times.split("-"))
        file, side = recording.split("-")
        recordings[recording] = Recording(recording, Path("call.sph"), 0, file, side, 16000)
        utterances[key] = Utterance(key, recording, recording, start, end, ())
    return DataDir(recordings, utterances)


class Toy:
    def __init__(self, folder: Path) -> None:
        lang_dir = write_lang(folder)
        self.lang, self.data = Lang.read(lang_dir), make_data()
        self.model = make_model(self.lang)
        self.arpa = Arpa.read(folder / "arpa")
        lexicon, grammar = FstArrays.read(lang_dir / "L_disambig.fst"), to_acceptor(self.arpa, self.lang.words)
        self.graph, _ = build(self.lang, lexicon, grammar, self.model, GraphConf(1.0, 0.1))
        self.search = BeamSearch(self.graph)

    def scores_of(self, keys: Sequence[str]) -> Iterator[tuple[str, np.ndarray | None]]:
        return ((key, self.scores(key)) for key in keys)

    def scores(self, key: str) -> np.ndarray | None:
        if SPOKEN[key] is None:
            return None
        pdfs = []
        for name in SPOKEN[key].split():
            phone = self.lang.phones[name]
            path = [0, 1, 2, 3, 4] if name in self.lang.silence_phones else [0, 1, 2]
            pdfs += [self.model.tree.pdf((phone,), state) for state in path for _ in range(2)]
        return self.model.log_likelihoods(self.model.gmm.means[pdfs]).numpy()

    def decode(self, out: Path, jobs: int = 1, best: Point | None = BEST) -> list[Path]:
        parts = [out / str(job) for job in range(jobs)]
        for data, part in zip(self.data.split(jobs), parts, strict=True):
            search_job(data, self.scores_of, self.search, self.lang, self.model, CONF, best, part)
        return parts


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy(tmp_path_factory.mktemp("toy"))


EXPECTED = """\
sw01 A 0.10 0.12 c
sw01 A 0.22 0.12 c
sw01 B 0.50 0.18 d
sw01 B 0.68 0.18 d
"""


@pytest.mark.parametrize("jobs", [1, 3])
def test_words_and_times_are_those_spoken(toy: Toy, tmp_path: Path, jobs: int) -> None:
    join(toy.data, toy.decode(tmp_path, jobs), tmp_path / "all")
    lines = [line.rsplit(" ", 1) for line in (tmp_path / "all" / "hyp.ctm").read_text().splitlines()]
    assert "".join(f"{word}\n" for word, _ in lines) == EXPECTED
    assert all(0.9 < float(confidence) <= 1 for _, confidence in lines)
    stats = json.loads((tmp_path / "all" / "stats.json").read_text())
    assert stats["utterances"] == 4
    assert stats["without_frames"] == ["sw02-B_000000-000001"]
    assert stats["hours"] * 360_000 == pytest.approx(44 + 36 + 10)
    lattices = read_archive(tmp_path / "all" / "lattices.scp", expected=[key for key in SPOKEN if SPOKEN[key]])
    names = toy.lang.names()
    best = {key: " ".join(names[n] for n in Lattice.of_matrix(lattices[key], key).best(BEST)) for key in lattices}
    assert best == {"sw01-A_000000-000100": "c c", "sw01-B_000050-000150": "d d", "sw02-A_000000-000100": ""}


def test_without_chosen_scales_there_are_lattices_alone(toy: Toy, tmp_path: Path) -> None:
    parts = toy.decode(tmp_path, jobs=2, best=None)
    join(toy.data, parts, tmp_path / "all")
    assert not (tmp_path / "all" / "hyp.ctm").exists()
    assert (tmp_path / "all" / "lattices.scp").exists()


def test_another_language_model_takes_the_graphs_place(toy: Toy, tmp_path: Path) -> None:
    """It all but forbids c."""
    (tmp_path / "arpa").write_text(ARPA.replace("-0.8\tc", "-30\tc").replace("-1.6\t<s> c", "-30\t<s> c"))
    conf = replace(CONF, acoustic_scale=0.02, lattice_beam=15.0)
    key = "sw01-A_000000-000100"
    plain = Recognizer(toy.search, conf, toy.lang, Stats()).lattice(key, toy.scores(key))
    changed = Recognizer(toy.search, conf, toy.lang, Stats(), (toy.arpa, Arpa.read(tmp_path / "arpa"))).lattice(
        key, toy.scores(key)
    )
    point = Point(0.02, 0.0)
    names = toy.lang.names()
    assert "c" in [names[n] for n in plain.best(point)]
    assert "c" not in [names[n] for n in changed.best(point)]


def test_too_few_frames_for_any_word(toy: Toy, tmp_path: Path) -> None:
    """Two frames end in no final state, not even silence's: searched twice, counted, answered with no word."""
    cut = toy.scores("sw01-B_000050-000150")[:2]
    data = toy.data.subset(["sw01-B_000050-000150"])
    scores_of = lambda keys: ((key, cut) for key in keys)  # noqa: E731
    search_job(data, scores_of, toy.search, toy.lang, toy.model, CONF, BEST, tmp_path / "0")
    stats = json.loads((tmp_path / "0" / "stats.json").read_text())
    assert (stats["retried"], stats["partial"]) == (1, 1)
    assert (tmp_path / "0" / "hyp.ctm").read_text() == ""
    assert (tmp_path / "0" / "utterances").read_text() == "sw01-B_000050-000150\n"


def test_a_search_out_of_time_is_done_narrower(toy: Toy) -> None:
    """The last, narrowest one has no limit: there is an answer."""
    widths = []

    def search(scores: np.ndarray, scale: float, conf: SearchConf, seconds: float) -> StateLattice:
        widths.append((conf.beam, conf.max_active, seconds < 1))
        return toy.search(scores, scale, conf, seconds)

    stats, key = Stats(), "sw01-B_000050-000150"
    found = Recognizer(search, replace(CONF, time_limit=0.0), toy.lang, stats).lattice(key, toy.scores(key))
    assert widths == [(40.0, 1000, True), (20.0, 500, True), (10.0, 250, False)]
    assert stats.out_of_time == [key]
    names = toy.lang.names()
    assert [names[n] for n in found.best(BEST)] == ["d", "d"]


def test_words_that_the_frames_have_no_room_for_go(toy: Toy) -> None:
    """Of a partial path: a d takes at least nine frames."""
    scores = toy.scores("sw01-B_000050-000150")
    aligner = Aligner(toy.model, toy.lang)
    assert word_times(aligner, "u", scores, ("d", "d")) == [("d", 0, 18), ("d", 18, 18)]
    assert word_times(aligner, "u", scores[:17], ("d", "d")) == [("d", 0, 17)]
    assert word_times(aligner, "u", scores[:8], ("d", "d")) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda scores: scores[:, :-1], "the GMM has"),
        (lambda scores: np.full_like(scores, np.nan), "not finite"),
    ],
)
def test_bad_log_likelihoods(toy: Toy, tmp_path: Path, damage, message: str) -> None:
    data = toy.data.subset(["sw01-A_000000-000100"])
    with pytest.raises(RecipeError, match=f"sw01-A_000000-000100.*{message}"):
        scores_of = lambda keys: ((key, damage(toy.scores(key))) for key in keys)  # noqa: E731
        search_job(data, scores_of, toy.search, toy.lang, toy.model, CONF, BEST, tmp_path / "0")
    assert not (tmp_path / "0").exists()


def test_graph_of_another_model(toy: Toy, tmp_path: Path) -> None:
    toy.graph.write(tmp_path / "HCLG.fst")
    assert read_graph(tmp_path / "HCLG.fst", toy.model.num_pdfs).num_states == toy.graph.num_states
    with pytest.raises(RecipeError, match="found one with 3"):
        read_graph(tmp_path / "HCLG.fst", 3)
    with pytest.raises(RecipeError, match="no such graph"):
        read_graph(tmp_path / "none.fst", 3)


def test_join_sorts_by_time_and_misses_nothing(toy: Toy, tmp_path: Path) -> None:
    parts = toy.decode(tmp_path, jobs=2)
    ctm = parts[0] / "hyp.ctm"
    ctm.write_text("sw01 A 10.00 0.10 b 1.00\nsw01 A 9.00 0.10 a 1.00\n")
    (parts[1] / "hyp.ctm").write_text("en00 B 3.00 0.10 c 1.00\n")
    join(toy.data, parts, tmp_path / "all")
    assert [line.split()[4] for line in (tmp_path / "all/hyp.ctm").read_text().splitlines()] == ["c", "a", "b"]
    with pytest.raises(RecipeError, match="not both in the set and decoded"):
        join(toy.data, parts[:1], tmp_path / "all")
    with pytest.raises(RecipeError, match="decoded twice"):
        join(toy.data, [*parts, parts[0]], tmp_path / "all")
    (parts[1] / "hyp.ctm").unlink()
    with pytest.raises(RecipeError, match="some have lattices alone"):
        join(toy.data, parts, tmp_path / "all")
    (parts[1] / "stats.json").unlink()
    with pytest.raises(RecipeError, match="no decoded job"):
        join(toy.data, parts, tmp_path / "all")


@pytest.mark.parametrize(
    ("scales", "penalties"), [((), (0.0,)), ((0.1,), ()), ((0.1, 0.1), (0.0,)), ((0.0,), (0.0,)), ((-0.1,), (0.0,))]
)
def test_bad_grids(scales: tuple[float, ...], penalties: tuple[float, ...]) -> None:
    with pytest.raises(RecipeError, match=r"decode: .*(acoustic_scales|insertion_penalties)"):
        replace(CONF, acoustic_scales=scales, insertion_penalties=penalties)


def test_a_speaker_adapted_model_finds_each_speakers_map(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every speaker's frames are moved by an amount of their own: its transform takes them back, by the words found."""
    monkeypatch.setattr(speakers, "MIN_FRAMES", 100.0)
    model = make_model(toy.lang)
    model.unadapted = model.gmm
    generator = torch.Generator().manual_seed(5)
    true, moved = {}, {}
    for key, spoken in SPOKEN.items():
        shift = 1.5 * torch.randn(model.num_pdfs, generator=generator)
        pdfs = []
        for name in (spoken or "").split() * 40:
            states = 5 if name in toy.lang.silence_phones else 3
            pdfs += [model.tree.pdf((toy.lang.phones[name],), state) for state in range(states) for _ in range(2)]
        true[key] = model.gmm.means[pdfs] + torch.randn(len(pdfs), model.num_pdfs, generator=generator)
        moved[key] = true[key] + shift
    features_of = {key: x if SPOKEN[key] else None for key, x in moved.items()}.get
    conf = replace(CONF, acoustic_scale=0.1)
    parts = [tmp_path / str(job) for job in range(2)]
    for data, part in zip(toy.data.split(2), parts, strict=True):
        search_job(data, None, toy.search, toy.lang, model, conf, Point(0.1, 0.0), part, features_of)
    join(toy.data, parts, tmp_path / "all")
    transforms = read_archive(tmp_path / "all" / "fmllr.scp", expected=toy.data.speakers)
    for key in ("sw01-A_000000-000100", "sw01-B_000050-000150"):
        back = apply(torch.tensor(transforms[key[:6]]), moved[key])
        assert float((moved[key] - true[key]).square().mean()) > 1
        assert float((back - true[key]).square().mean()) < 0.15
    for speaker in ("sw02-A", "sw02-B"):  # silence alone; no frame at all
        np.testing.assert_array_equal(transforms[speaker], identity_transform(model.num_pdfs).numpy())
    words = [line.split()[4] for line in (tmp_path / "all" / "hyp.ctm").read_text().splitlines()]
    assert words == ["c"] * 80 + ["d"] * 80
