"""Decoding frames whose words and times are known; joining jobs; choosing a point of the grid."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from local.adaptation import speakers
from local.adaptation.linear import apply, identity_transform
from local.cli import RecipeError
from local.datadir import DataDir, Recording, Utterance
from local.decode import DecodeConf, Point, choose, grid, join, read_graph, search_job, tune, word_times
from local.files import read_archive
from local.graph import Fst, GraphConf, build
from local.hmm.align import Aligner
from local.hmm.gmm import Gmm
from local.hmm.model import HmmModel
from local.hmm.tree import monophone_tree
from local.lexicon import Lang
from local.lm import acceptor
from tests.graph.toy import write_lang

CONF = DecodeConf(beam=40.0, max_active=1000, acoustic_scales=(0.5, 1.0), insertion_penalties=(0.0,))
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
        lexicon = Fst.read(str(lang_dir / "L_disambig.fst"))
        self.graph, _ = build(self.lang, lexicon, acceptor(folder / "arpa", lang_dir), self.model, GraphConf(1.0, 0.1))

    def scores(self, key: str) -> np.ndarray | None:
        if SPOKEN[key] is None:
            return None
        pdfs = []
        for name in SPOKEN[key].split():
            phone = self.lang.phones[name]
            path = [0, 1, 2, 3, 4] if name in self.lang.silence_phones else [0, 1, 2]
            pdfs += [self.model.tree.pdf((phone,), state) for state in path for _ in range(2)]
        return self.model.log_likelihoods(self.model.gmm.means[pdfs]).numpy()

    def decode(self, out: Path, jobs: int = 1, conf: DecodeConf = CONF) -> list[Path]:
        parts = [out / str(job) for job in range(jobs)]
        for data, part in zip(self.data.split(jobs), parts, strict=True):
            search_job(data, self.scores, self.graph, self.lang, self.model, conf, grid(conf), part)
        return parts


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy(tmp_path_factory.mktemp("toy"))


EXPECTED = """\
sw01 A 0.10 0.12 c 1.00
sw01 A 0.22 0.12 c 1.00
sw01 B 0.50 0.18 d 1.00
sw01 B 0.68 0.18 d 1.00
"""


@pytest.mark.parametrize("jobs", [1, 3])
def test_words_and_times_are_those_spoken(toy: Toy, tmp_path: Path, jobs: int) -> None:
    join(toy.data, toy.decode(tmp_path, jobs), tmp_path / "all")
    assert sorted(path.name for path in (tmp_path / "all").glob("*.ctm")) == ["hyp.0.5_0.ctm", "hyp.1_0.ctm"]
    for path in (tmp_path / "all").glob("*.ctm"):
        assert path.read_text() == EXPECTED
    stats = json.loads((tmp_path / "all" / "stats.json").read_text())
    assert stats["utterances"] == 4
    assert stats["without_frames"] == ["sw02-B_000000-000001"]
    assert stats["hours"] * 360_000 == pytest.approx(44 + 36 + 10)


def test_a_penalty_that_no_word_is_worth(toy: Toy, tmp_path: Path) -> None:
    """Many words are dearer than few: at a high penalty d takes the place of a and c, at a very high one silence."""
    conf = DecodeConf(40.0, 1000, (0.01,), (0.0, 1000.0))
    (part,) = toy.decode(tmp_path, conf=conf)
    assert (part / "hyp.0.01_0.ctm").read_text()
    assert (part / "hyp.0.01_1000.ctm").read_text() == ""


def test_too_few_frames_for_any_word(toy: Toy, tmp_path: Path) -> None:
    """Two frames end in no final state, not even silence's: searched twice, counted, answered with no word."""
    cut = toy.scores("sw01-B_000050-000150")[:2]
    data = toy.data.subset(["sw01-B_000050-000150"])
    search_job(data, lambda key: cut, toy.graph, toy.lang, toy.model, CONF, grid(CONF)[:1], tmp_path / "0")
    stats = json.loads((tmp_path / "0" / "stats.json").read_text())
    assert (stats["retried"], stats["partial"]) == (1, 1)
    assert (tmp_path / "0" / "hyp.0.5_0.ctm").read_text() == ""
    assert (tmp_path / "0" / "utterances").read_text() == "sw01-B_000050-000150\n"


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
        search_job(data, lambda key: damage(toy.scores(key)), toy.graph, toy.lang, toy.model, CONF, grid(CONF), tmp_path / "0")
    assert not (tmp_path / "0").exists()


def test_graph_of_another_model(toy: Toy, tmp_path: Path) -> None:
    toy.graph.write(str(tmp_path / "HCLG.fst"))
    assert read_graph(tmp_path / "HCLG.fst", toy.model.num_pdfs).num_states == toy.graph.num_states
    with pytest.raises(RecipeError, match="found one with 3"):
        read_graph(tmp_path / "HCLG.fst", 3)
    with pytest.raises(RecipeError, match="no such graph"):
        read_graph(tmp_path / "none.fst", 3)


def test_join_sorts_by_time_and_misses_nothing(toy: Toy, tmp_path: Path) -> None:
    parts = toy.decode(tmp_path, jobs=2)
    ctm = parts[0] / "hyp.1_0.ctm"
    ctm.write_text("sw01 A 10.00 0.10 b 1.00\nsw01 A 9.00 0.10 a 1.00\n")
    (parts[1] / "hyp.1_0.ctm").write_text("en00 B 3.00 0.10 c 1.00\n")
    join(toy.data, parts, tmp_path / "all")
    assert [line.split()[4] for line in (tmp_path / "all/hyp.1_0.ctm").read_text().splitlines()] == ["c", "a", "b"]
    with pytest.raises(RecipeError, match="not both in the set and decoded"):
        join(toy.data, parts[:1], tmp_path / "all")
    with pytest.raises(RecipeError, match="decoded twice"):
        join(toy.data, [*parts, parts[0]], tmp_path / "all")
    (parts[1] / "hyp.1_0.ctm").rename(parts[1] / "hyp.2_0.ctm")
    with pytest.raises(RecipeError, match="different grids"):
        join(toy.data, parts, tmp_path / "all")
    (parts[1] / "stats.json").unlink()
    with pytest.raises(RecipeError, match="no decoded job"):
        join(toy.data, parts, tmp_path / "all")


@pytest.mark.parametrize(
    ("scales", "penalties"), [((), (0.0,)), ((0.1,), ()), ((0.1, 0.1), (0.0,)), ((0.0,), (0.0,)), ((-0.1,), (0.0,))]
)
def test_bad_grids(scales: tuple[float, ...], penalties: tuple[float, ...]) -> None:
    with pytest.raises(RecipeError, match="acoustic_scales"):
        grid(DecodeConf(10.0, 100, scales, penalties))


def test_names_of_points_read_back() -> None:
    for point in grid(DecodeConf(10.0, 100, (0.0667, 0.1, 1.0), (-1.0, 0.0, 0.5))):
        assert Point.parse(point.name) == point
    with pytest.raises(RecipeError, match="<scale>_<penalty>"):
        Point.parse("allreduce")


def errors(rows: list[list[int]]) -> dict[Point, int]:
    """Rows by scale 0.1, 0.2, ..., columns by penalty 0, 1, ..."""
    return {Point((i + 1) / 10, float(j)): value for i, row in enumerate(rows) for j, value in enumerate(row)}


@pytest.mark.parametrize(
    ("rows", "best", "edge"),
    [
        ([[9, 9, 9], [9, 5, 9], [9, 9, 9]], Point(0.2, 1.0), False),
        ([[9, 9, 9], [9, 5, 9], [9, 4, 9]], Point(0.3, 1.0), True),
        ([[9, 9, 9], [4, 5, 9], [9, 9, 9]], Point(0.2, 0.0), True),
        ([[7, 7, 7], [7, 7, 7], [7, 7, 7]], Point(0.2, 1.0), False),  # a tie: the middle
        ([[9], [5], [9]], Point(0.2, 0.0), False),  # one penalty alone is no edge
        ([[5]], Point(0.1, 0.0), False),
    ],
)
def test_choice(rows: list[list[int]], best: Point, edge: bool) -> None:
    assert choose(errors(rows)) == (best, edge)


def test_tune_writes_what_search_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"0.1_0": {"N": 200, "sub": 10, "del": 5, "ins": 5}, "0.2_0": {"N": 200, "sub": 1, "del": 2, "ins": 3}}
    (tmp_path / "grid.json").write_text(json.dumps(counts))
    tune(tmp_path / "grid.json", tmp_path / "best.json")
    expected = {"acoustic_scale": 0.2, "insertion_penalty": 0.0, "wer": 3.0, "edge": True}
    assert json.loads((tmp_path / "best.json").read_text()) == expected
    assert "widen it" in capsys.readouterr().err


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
    conf = DecodeConf(beam=40.0, max_active=1000, acoustic_scales=(0.1,), insertion_penalties=(0.0,))
    parts = [tmp_path / str(job) for job in range(2)]
    for data, part in zip(toy.data.split(2), parts, strict=True):
        search_job(data, None, toy.graph, toy.lang, model, conf, grid(conf), part, features_of)
    join(toy.data, parts, tmp_path / "all")
    transforms = read_archive(tmp_path / "all" / "fmllr.scp", expected=toy.data.speakers)
    for key in ("sw01-A_000000-000100", "sw01-B_000050-000150"):
        back = apply(torch.tensor(transforms[key[:6]]), moved[key])
        assert float((moved[key] - true[key]).square().mean()) > 1
        assert float((back - true[key]).square().mean()) < 0.15
    for speaker in ("sw02-A", "sw02-B"):  # silence alone; no frame at all
        np.testing.assert_array_equal(transforms[speaker], identity_transform(model.num_pdfs).numpy())
    words = [line.split()[4] for line in (tmp_path / "all" / "hyp.0.1_0.ctm").read_text().splitlines()]
    assert words == ["c"] * 80 + ["d"] * 80
