"""Training and alignment by their command lines, on speech whose words' times are known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from adpsgd import World
from local import decode
from local.adaptation import speakers
from local.adaptation.linear import apply
from local.cli import RecipeError
from local.datadir import DataDir
from local.features import FeatureSet
from local.files import read_archive
from local.hmm import align, train
from local.hmm.model import HmmModel
from local.hmm.train import Trainer
from local.lexicon import Lang, read_pronunciations
from local.team import Team
from tests.hmm.planted import LDA, MONO, SAT, TREE, TRI, PlantedCorpus, random_model

ALONE = Team(World(0, 1, dist.HashStore(), torch.device("cpu")))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PlantedCorpus:
    return PlantedCorpus(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def trained(corpus: PlantedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stages ``mono`` and ``tri``."""
    out = tmp_path_factory.mktemp("align")
    train.main(["mono", *corpus.arguments(out / "mono", MONO)])
    train.main(["tri", "--before", str(out / "mono"), *corpus.arguments(out / "tri", TRI)])
    return out


def align_main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["align", *map(str, arguments)])
    align.main()


def align_set(corpus: PlantedCorpus, model: Path, out: Path, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    for job in range(jobs):
        where = ("--model", model, "--data", corpus.data, "--feats", corpus.feats, "--lang", corpus.lang)
        align_main(monkeypatch, *where, "--job", job, "--jobs", jobs, "--out", out / str(job))
    parts = [out / str(job) for job in range(jobs)]
    align_main(monkeypatch, "--join", *parts, "--data", corpus.data, "--out", out)


def read_log(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def word_errors(corpus: PlantedCorpus, ctm: Path) -> np.ndarray:
    """Frames between found and true starts and ends, ``(words, 2)``."""
    data, found = DataDir.read(corpus.data), {}
    for line in ctm.read_text().splitlines():
        file, side, start, duration, word = line.split()
        found.setdefault(f"{file}-{side}", []).append((float(start), float(duration), word))
    errors = []
    for key, words in corpus.words.items():
        utterance = data.utterances[key]
        inside = [w for w in sorted(found[utterance.recording]) if utterance.start <= w[0] < utterance.end]
        assert [word for *_, word in inside] == list(utterance.words)
        for (start, duration, _), (_, first, frames) in zip(inside, words, strict=True):
            errors.append((round((start - utterance.start) * 100) - first, round(duration * 100) - frames))
    return np.array(errors)


@pytest.mark.parametrize("stage", ["mono", "tri"])
def test_words_are_found_where_they_are(
    corpus: PlantedCorpus, trained: Path, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    align_set(corpus, trained / stage / "model.pt", tmp_path, monkeypatch, jobs=2)
    errors = np.abs(word_errors(corpus, tmp_path / "words.ctm"))
    assert np.mean(errors <= 2) >= 0.9  # between two equal phones ("c c") there is no boundary to find
    alignment = read_archive(tmp_path / "ali.scp", expected=corpus.words)
    model = HmmModel.load(trained / stage / "model.pt")
    for key in corpus.words:
        assert alignment[key].dtype == np.int32
        assert len(alignment[key]) == corpus.frames[key]
        assert 0 <= alignment[key].min() <= alignment[key].max() < model.num_pdfs
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert (stats["utterances"], stats["failed"], stats["frames"]) == (60, [], sum(corpus.frames.values()))
    phones = [line.split() for line in (tmp_path / "phones.ctm").read_text().splitlines()]
    assert sum(float(duration) for *_, duration, _ in phones) == pytest.approx(sum(corpus.frames.values()) / 100)


def test_context_raises_the_likelihood(corpus: PlantedCorpus, trained: Path) -> None:
    mono, tri = (read_log(trained / stage / "log.jsonl") for stage in ("mono", "tri"))
    assert mono[-1]["log_likelihood_per_frame"] > mono[0]["log_likelihood_per_frame"]
    assert tri[-1]["log_likelihood_per_frame"] > mono[-1]["log_likelihood_per_frame"]
    assert [line["iteration"] for line in mono] == list(range(1, 13))
    assert [line["iteration"] for line in mono if line["realigned"]] == MONO["realign"]
    assert {line["frames"] for line in mono[1:] + tri} == {sum(corpus.frames.values())}
    assert mono[-1]["gaussians"] <= MONO["gaussians"]
    model = HmmModel.load(trained / "tri" / "model.pt")
    roots = sum(model.num_states.values())
    assert roots < model.num_pdfs <= TRI["leaves"]


def test_without_growth_or_realignment_no_iteration_lowers_the_likelihood(corpus: PlantedCorpus, tmp_path: Path) -> None:
    train.main(["mono", *corpus.arguments(tmp_path, {**MONO, "realign": [2], "grow_until": 4})])
    found = [line["log_likelihood_per_frame"] for line in read_log(tmp_path / "log.jsonl")][4:]
    assert np.all(np.diff(found) >= -1e-5)


def test_occupancy_and_transitions_are_the_alignments(
    corpus: PlantedCorpus, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    align_set(corpus, trained / "mono" / "model.pt", tmp_path, monkeypatch, jobs=1)
    model = HmmModel.load(trained / "mono" / "model.pt")
    counts = np.bincount(np.concatenate([*read_archive(tmp_path / "ali.scp").values()]), minlength=model.num_pdfs)
    assert float(model.occupancy.sum()) == sum(corpus.frames.values())
    np.testing.assert_allclose(model.occupancy.numpy(), counts, rtol=0.1, atol=10)
    phones = [line.split() for line in (tmp_path / "phones.ctm").read_text().splitlines()]
    for name in "abc":
        frames = np.mean([100 * float(duration) for *_, duration, phone in phones if phone == name])
        stays = [np.exp(arc.log_prob) for arc in model.hmm((model.phones[name],)) if arc.source == arc.target]
        assert sum(1 / (1 - stay) for stay in stays) == pytest.approx(frames, rel=0.05)  # the HMM's mean duration


def test_the_same_again(corpus: PlantedCorpus, trained: Path, tmp_path: Path) -> None:
    train.main(["mono", *corpus.arguments(tmp_path, MONO)])
    assert (tmp_path / "log.jsonl").read_text() == (trained / "mono" / "log.jsonl").read_text()
    one, other = (HmmModel.load(folder / "model.pt") for folder in (tmp_path, trained / "mono"))
    assert torch.equal(one.gmm.means, other.gmm.means)
    assert torch.equal(one.transitions, other.transitions)


def test_jobs_align_as_one(corpus: PlantedCorpus, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained / "tri" / "model.pt"
    align_set(corpus, model, tmp_path / "one", monkeypatch, jobs=1)
    align_set(corpus, model, tmp_path / "three", monkeypatch, jobs=3)
    one, three = (read_archive(tmp_path / name / "ali.scp") for name in ("one", "three"))
    assert sorted(one) == sorted(three)
    assert all(np.array_equal(one[key], three[key]) for key in one)


def test_a_subset_is_spread_over_the_shortest_utterances(corpus: PlantedCorpus) -> None:
    trainer = Trainer(ALONE, Lang.read(corpus.lang), corpus.data, corpus.feats, 10, 20)
    shortest = sorted(corpus.frames.values())[:20]
    assert len(trainer.words) == 10
    assert all(corpus.frames[key] <= shortest[-1] for key in trainer.words)
    assert max(corpus.frames[key] for key in trainer.words) > shortest[9]  # spread over them, not the shortest alone
    assert len(Trainer(ALONE, trainer.lang, corpus.data, corpus.feats, 1000).words) == 60


def test_an_equal_alignment_gives_every_state_its_share(corpus: PlantedCorpus) -> None:
    trainer = Trainer(ALONE, Lang.read(corpus.lang), corpus.data, corpus.feats)
    model = random_model(trainer.lang, 1, seed=0, dims=5)
    names = {model.tree.pdf((phone,), 0): name for name, phone in model.phones.items()}
    paths = {}
    for key, pdfs in trainer.equal_alignment(model).items():
        assert len(pdfs) == corpus.frames[key]
        runs = np.diff(np.flatnonzero(np.diff(pdfs.numpy(), prepend=-1, append=-1)))
        assert runs.max() - runs.min() <= 1
        paths[key] = [names[pdf] for pdf in torch.unique_consecutive(pdfs).tolist() if pdf in names]
    silences = [path.count("sil") for path in paths.values()]
    chances = [len(trainer.words[key]) + 1 for key in paths]
    assert sum(silences) == pytest.approx(0.5 * sum(chances), rel=0.25)  # in half of the places where it may be
    spoken = {" ".join(name for name in path if name != "sil") for path in paths.values()}
    assert any("a c" in path for path in spoken)  # the rarer pronunciation too
    assert any("a b c" in path for path in spoken)


def test_contexts_statistics_are_sums_over_their_frames(corpus: PlantedCorpus, trained: Path) -> None:
    lang = Lang.read(corpus.lang)
    trainer = Trainer(ALONE, lang, corpus.data, corpus.feats, 12)
    model = HmmModel.load(trained / "mono" / "model.pt")
    alignments = trainer.align(model)
    index, stats = trainer.accumulate_contexts(alignments)
    expected: dict = {}
    for key, alignment in alignments.items():
        windows = [
            tuple(window)
            for window, (_, _, n) in zip(alignment.windows.tolist(), alignment.phones, strict=True)
            for _ in range(n)
        ]
        for x, window, state in zip(trainer.features[key].double(), windows, alignment.hmm_states.tolist(), strict=True):
            row = torch.cat([torch.ones(1), x, x * x])
            expected[window, state] = expected.get((window, state), 0) + row
    assert set(stats) == set(expected)
    for context, row in expected.items():
        np.testing.assert_allclose(stats[context], row.numpy(), rtol=1e-5, atol=1e-4)
    contexts = list(stats)
    key = next(iter(alignments))
    assert [contexts[place][1] for place in index[key].tolist()] == alignments[key].hmm_states.tolist()


@pytest.mark.parametrize("too_short", [2, 6])
def test_utterances_too_short_for_their_words(
    corpus: PlantedCorpus, trained: Path, too_short: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = PlantedCorpus(tmp_path / "broken")
    features = {key: np.array(matrix) for key, matrix in read_archive(broken.feats / "mfcc.scp").items()}
    cut = sorted(features)[:too_short]
    broken.write_features({key: matrix[:2] if key in cut else matrix for key, matrix in features.items()})
    model = trained / "tri" / "model.pt"
    if too_short > 0.05 * len(features):
        with pytest.raises(RecipeError, match=f"{too_short} of 60 utterances have no alignment: too short"):
            align_set(broken, model, tmp_path / "ali", monkeypatch, jobs=1)
        assert not list((tmp_path / "ali").rglob("*")) or not (tmp_path / "ali" / "ali.scp").exists()
    else:
        align_set(broken, model, tmp_path / "ali", monkeypatch, jobs=1)
        assert json.loads((tmp_path / "ali" / "stats.json").read_text())["failed"] == cut
        assert len(read_archive(tmp_path / "ali" / "ali.scp")) == 60 - too_short


@pytest.mark.parametrize(
    ("stage", "conf", "message"),
    [
        ("mono", {**MONO, "realign": [1, 2]}, "realign from iteration 2"),
        ("mono", {**MONO, "iterationz": 3}, "did you mean 'iterations'"),
        ("tri", TRI, "--before is needed"),
    ],
)
def test_what_cannot_be_trained_is_refused(corpus: PlantedCorpus, tmp_path: Path, stage: str, conf: dict, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        train.main([stage, *corpus.arguments(tmp_path / "out", conf)])
    assert not (tmp_path / "out").exists()


def test_fewer_leaves_than_states_are_refused(corpus: PlantedCorpus, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="leaves"):
        train.main(["tri", "--before", str(trained / "mono"), *corpus.arguments(tmp_path / "out", {**TRI, "leaves": 5})])


def test_alignment_without_its_inputs_is_refused(corpus: PlantedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match="needed to align"):
        align_main(monkeypatch, "--data", corpus.data, "--out", "nowhere")


def test_speakers_that_an_affine_map_sets_apart_come_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each speaker's features go through a map of their own: the transforms of LDA-MLLT-SAT models take most of it back."""
    for module in (train, speakers):
        monkeypatch.setattr(module, "MIN_FRAMES", 100.0)
    corpus = PlantedCorpus(tmp_path / "corpus")
    data = DataDir.read(corpus.data)
    rng = np.random.default_rng(3)
    maps = {speaker: (np.eye(5) + rng.normal(0, 0.1, (5, 5)), rng.normal(0, 0.7, 5)) for speaker in data.speakers}
    plain = {key: np.array(matrix) for key, matrix in read_archive(corpus.feats / "mfcc.scp").items()}
    moved = {}
    for key, matrix in plain.items():
        a, b = maps[data.utterances[key].speaker]
        moved[key] = (matrix @ a.T + b).astype(np.float32)
    stages = [("mono", MONO), ("tri", TRI), ("lda", LDA), ("sat", SAT)]
    for number, (stage, conf) in enumerate(stages):
        corpus.write_features(plain if stage in ("mono", "tri") else moved)  # the flat start is not what is tried here
        before = ["--before", str(tmp_path / stages[number - 1][0])] if number else []
        train.main([stage, *before, *corpus.arguments(tmp_path / stage, conf)])
    gains = [line.get("transform_gain_per_frame") for line in read_log(tmp_path / "lda" / "log.jsonl")]
    assert all(gain > 0 for gain in gains[:3])
    assert gains[3:] == [None] * 3
    model = HmmModel.load(tmp_path / "sat" / "model.pt")
    assert model.unadapted is not None
    assert model.unadapted.num_gaussians == model.gmm.num_gaussians
    align_set(corpus, tmp_path / "sat" / "model.pt", tmp_path / "ali", monkeypatch, jobs=2)
    assert np.mean(np.abs(word_errors(corpus, tmp_path / "ali" / "words.ctm")) <= 2) >= 0.9
    transforms = read_archive(tmp_path / "ali" / "fmllr.scp", expected=data.speakers)
    alignment = read_archive(tmp_path / "ali" / "ali.scp")
    features = FeatureSet(corpus.feats, "mfcc", data.utt2side)

    def spread(adapted: bool) -> float:
        """Variance between the speakers' means of a pdf, as a share of that between pdfs."""
        means: dict[int, dict[str, np.ndarray]] = {}
        for speaker, keys in data.speakers.items():
            x = torch.cat([align.gmm_input(features[key], model.projection) for key in keys])
            x = apply(torch.from_numpy(np.array(transforms[speaker])), x) if adapted else x
            pdfs = np.concatenate([alignment[key] for key in keys])
            for pdf in np.unique(pdfs):
                if (pdfs == pdf).sum() >= 20 and not model.silence_pdfs()[pdf]:
                    means.setdefault(int(pdf), {})[speaker] = x[torch.from_numpy(pdfs == pdf)].numpy().mean(0)
        shared = [np.stack(list(of.values())) for of in means.values() if len(of) == len(data.speakers)]
        assert len(shared) >= 3
        return float(np.mean([m.var(0).sum() for m in shared]) / np.stack([m.mean(0) for m in shared]).var(0).sum())

    assert spread(adapted=True) < 0.25 * spread(adapted=False)
    with pytest.raises(RecipeError, match="not adapted to speakers"):
        speakers.speaker_transform(HmmModel.load(tmp_path / "lda" / "model.pt"), [], [])
    check_decoding_adapts_alike(corpus, model, transforms)
    check_network_tree(corpus, tmp_path, monkeypatch)


def check_decoding_adapts_alike(corpus: PlantedCorpus, model: HmmModel, transforms: Mapping[str, np.ndarray]) -> None:
    """Where decoding finds the words that were said, test speakers get the transforms that training speakers got."""
    data, lang = DataDir.read(corpus.data), Lang.read(corpus.lang)
    # of each speaker in both passes
    told = iter([data.utterances[key].words for keys in data.speakers.values() for key in (*keys, *keys)])

    class Told:
        def best(self, key: str, scores: np.ndarray) -> tuple[str, ...]:
            return next(told)

    features_of = decode.gmm_features(model, data, corpus.feats)
    found = decode.adapt(model, data, features_of, Told(), align.Aligner(model, lang))  # type: ignore[arg-type]
    assert next(told, None) is None
    for speaker, keys in data.speakers.items():
        x = torch.cat([features_of(key) for key in keys])
        one, other = (apply(w, x) for w in (found[speaker], torch.from_numpy(np.array(transforms[speaker]))))
        moved = (other - x).square().mean()
        assert float((one - other).square().mean()) < 0.02 * float(moved)


def check_network_tree(corpus: PlantedCorpus, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree grown on the adapted stage's alignments gives the same phones other pdf-ids, one for each of its contexts."""
    train.main(["tree", "--before", str(folder / "sat"), *corpus.arguments(folder / "tree", TREE)])
    labels, model = (HmmModel.load(folder / name / "model.pt") for name in ("tree", "sat"))
    assert model.num_pdfs < labels.num_pdfs <= TREE["leaves"]
    where = ("--data", corpus.data, "--feats", corpus.feats, "--lang", corpus.lang, "--job", 0, "--jobs", 1)
    names = ("--model", folder / "sat" / "model.pt", "--labels", folder / "tree" / "model.pt")
    align_main(monkeypatch, *where, *names, "--out", folder / "labelled")
    phones = [sorted((folder / name / "phones.ctm").read_text().splitlines()) for name in ("labelled", "ali")]
    assert phones[0] == phones[1]
    own, other = (read_archive(folder / name / "ali.scp") for name in ("ali", "labelled"))
    assert json.loads((folder / "labelled" / "stats.json").read_text())["num_pdfs"] == labels.num_pdfs
    seen = np.concatenate([other[key] for key in own])
    assert len(np.unique(seen)) > len(np.unique(np.concatenate([own[key] for key in own])))


def test_processes_and_stops_change_nothing_but_rounding(
    corpus: PlantedCorpus, trained: Path, tmp_path: Path, root: Path
) -> None:
    """Two processes, each stage in two jobs, against one process and one job that realigns at the same iterations."""
    stop = 4
    stages = {"lda": {**LDA, "realign": [2, 4, stop + 1]}, "sat": {**SAT, "realign": [2, 4, stop + 1]}}
    before = {name: ["--before", str(trained / "tri")] for name in ("one", "two")}
    for stage, conf in stages.items():
        half = tmp_path / "half" / stage
        one, two = (tmp_path / name / stage for name in ("one", "two"))
        train.main([stage, *before["one"], *corpus.arguments(one, conf)])
        together(root, 2, stage, *before["two"], *corpus.arguments(half, conf), "--until", str(stop))
        together(root, 2, stage, "--state", str(half), *corpus.arguments(two, {**conf, "stops": [stop]}))
        before = {"one": ["--before", str(one)], "two": ["--before", str(two)]}
        logs = [read_log(folder / "log.jsonl") for folder in (two, one)]
        found, expected = ([line["log_likelihood_per_frame"] for line in log] for log in logs)
        np.testing.assert_allclose(found, expected, rtol=1e-3)
        assert [line["frames"] for line in logs[0]] == [line["frames"] for line in logs[1]]
        counts = [json.loads((folder / "alignment.json").read_text()) for folder in (one, two)]
        frames = sum(frames * count for durations in counts[1]["durations"].values() for frames, count in durations)
        assert counts[0]["frames"] == counts[1]["frames"] == frames
    spoken = read_pronunciations(tmp_path / "two" / "sat" / "pronunciations.txt")
    words = [word for words in corpus.words.values() for word, *_ in words]
    assert sum(count for s, count in spoken.items() if s.variant[0] == "abc") == words.count("abc")


def test_the_flat_start_the_tree_and_subsets_are_the_same_by_two_processes(
    corpus: PlantedCorpus, trained: Path, tmp_path: Path, root: Path
) -> None:
    stages = {"mono": {**MONO, "utterances": 30, "of_shortest": 50}, "tri": TRI, "tree": TREE}
    before = {"mono": [], "tri": ["--before", str(trained / "mono")], "tree": ["--before", str(trained / "tri")]}
    for stage, conf in stages.items():
        one, two = (tmp_path / name / stage for name in ("one", "two"))
        train.main([stage, *before[stage], *corpus.arguments(one, conf)])
        together(root, 2, stage, *before[stage], *corpus.arguments(two, conf))
        models = [HmmModel.load(folder / "model.pt") for folder in (one, two)]
        assert models[0].tree.to_list() == models[1].tree.to_list()
        np.testing.assert_allclose(models[0].occupancy, models[1].occupancy, atol=5)
        if stage != "tree":
            logs = [[line["log_likelihood_per_frame"] for line in read_log(folder / "log.jsonl")] for folder in (one, two)]
            np.testing.assert_allclose(*logs, rtol=1e-3)


def together(root: Path, processes: int, *arguments: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [*command, "-m", "local.hmm.train", *arguments], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_boosting_silence_gives_it_more_frames(corpus: PlantedCorpus, trained: Path) -> None:
    trainer = Trainer(ALONE, Lang.read(corpus.lang), corpus.data, corpus.feats)
    model = HmmModel.load(trained / "tri" / "model.pt")
    silence = []
    for boost in (1e-4, 1.0, 1e4):
        alignments = trainer.align(model, boost)
        silence.append(sum(n for a in alignments.values() for phone, _, n in a.phones if phone == "sil"))
    assert silence[0] < silence[1] < silence[2]
