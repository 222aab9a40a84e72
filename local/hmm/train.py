"""Training of GMM-HMMs by Viterbi: a flat-start monophone stage, then triphones on a decision tree, plain and adapted.

    torchrun --nproc-per-node 4 -m local.hmm.train mono --data D --feats F --lang L --conf C --until 40 --out align/mono/40
    ... tri --before align/mono/40 --until 10 --out align/tri1/10     a stage's first iterations
    ... tri --state align/tri1/10 --until 20 --out align/tri1/20      its next ones
    ... lda --before align/tri2/35 ...                                on LDA and MLLT of spliced MFCC
    ... sat --before align/tri3/35 ...                                and fMLLR of each speaker
    ... tree --before align/tri4/35 ...                               no stage: a larger tree, for a network

Within fixed alignments an iteration is one step of EM; at some iterations the utterances are aligned anew. Every process has
its share of the speakers; statistics add up over the processes, one of which updates the model. The folder of an iteration
holds all that the next one needs: ``model.pt``, ``log.jsonl`` and, with adapted features, the speakers' ``fmllr.scp``; and of
the newest alignment ``alignment.json`` and ``pronunciations.txt``.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from local.adaptation.linear import MIN_FRAMES, FmllrStats, LdaStats, MlltStats, apply, fmllr, identity_transform, lda, mllt
from local.cli import RecipeError, parse_conf, run
from local.datadir import DataDir
from local.files import read_archive, write_archive, write_text
from local.hmm.align import Aligner, Alignment, Graph, check_share, gmm_input, pronunciations_of, read_inputs, splice
from local.hmm.gmm import Gmm, GmmStats, split_targets
from local.hmm.model import HmmModel
from local.hmm.topology import num_states
from local.hmm.tree import NO_PHONE, Context, Tree, build_tree, make_questions, monophone_tree
from local.lexicon import Lang, Spoken, write_pronunciations
from local.team import Team

Value = TypeVar("Value")

_VARIANCE_FLOOR = 0.01  # of the features' overall variance
_MIN_OCCUPANCY = 5.0  # frames below which a Gaussian is given up
_FRAMES_AT_ONCE = 50_000  # of the E step


@dataclass(frozen=True)
class StageConf:
    """How a stage is trained."""

    iterations: int
    realign: tuple[int, ...]  # iterations, from 1, that begin with a new alignment
    stops: tuple[int, ...]  # iterations after which the model is stored and a new job goes on, with a new alignment
    gaussians: int  # in all, once grown
    grow_until: int  # the iteration by which they are there
    power: float  # of a pdf's occupancy, by which the Gaussians are shared out
    min_frames: float  # that a Gaussian shall have on average
    boost_silence: float  # a factor on the likelihood of silence phones when aligning
    utterances: int | None  # train on so many, the shortest; null: on all


@dataclass(frozen=True)
class TreeConf:
    """How a tree is grown."""

    leaves: int  # at most
    min_count: float  # frames that each side of a split must have


@dataclass(frozen=True)
class TriphoneConf(StageConf, TreeConf):
    """How a triphone stage is trained."""


@dataclass(frozen=True)
class LdaConf(TriphoneConf):
    """How a triphone stage on LDA and MLLT of spliced MFCC is trained."""

    context: int  # frames either side that LDA looks at
    dims: int  # that it keeps
    mllt: tuple[int, ...]  # iterations, from 1, that end with a new MLLT


@dataclass(frozen=True)
class SatConf(TriphoneConf):
    """How a speaker-adapted triphone stage is trained, on the features of the stage before."""

    fmllr: tuple[int, ...]  # iterations, from 1, that begin with new transforms of the speakers


class Trainer:
    """A process's share of the utterances a model is trained on, held in memory, as the model sees them."""

    def __init__(self, team: Team, lang: Lang, data: DataDir, feats: Path, utterances: int | None = None) -> None:
        """:param utterances: take so many of the whole set, the shortest."""
        self.team, self.lang = team, lang
        features = read_inputs(data, feats)
        ids = sorted(features, key=lambda key: (data.utterances[key].end - data.utterances[key].start, key))[:utterances]
        if not ids:
            raise RecipeError("no utterance to train on")
        share = set(team.share(data.subset(ids)).utterances)
        self.words = {key: data.utterances[key].words for key in ids if key in share}
        self.mfcc = {key: features[key] for key in self._bar(self.words, "read")}
        self.speakers: dict[str, list[str]] = {}
        for key in self.words:
            self.speakers.setdefault(data.utterances[key].speaker, []).append(key)
        self.log: list[dict[str, Any]] = []
        self.alignments: dict[str, Alignment] = {}  # the newest
        self.failed: list[str] = []  # utterances that it has none of, of all processes
        self.project(None)

    def _bar(self, items: Iterable[Value], name: str) -> Iterable[Value]:
        return tqdm(items, desc=name, mininterval=2, disable=not self.team.leads)

    def project(self, projection: Tensor | None) -> None:
        """See the features through another projection, unadapted."""
        self.projection = projection
        self.unadapted = {key: gmm_input(features, projection) for key, features in self.mfcc.items()}
        self.transforms: dict[str, Tensor] = {}
        self._see(self.unadapted)

    def transform(self, transforms: dict[str, Tensor]) -> None:
        """See each speaker's features through a transform.

        :raises RecipeError: where a speaker has none.
        """
        if missing := sorted(set(self.speakers) - set(transforms)):
            raise RecipeError(f"speaker {missing[0]} has no fMLLR transform: train the stage before on all utterances")
        self.transforms = {speaker: transforms[speaker] for speaker in self.speakers}
        self._see(
            {key: apply(transforms[speaker], self.unadapted[key]) for speaker, keys in self.speakers.items() for key in keys}
        )

    def _see(self, features: dict[str, Tensor]) -> None:
        self.features = features
        dims = next(iter(features.values())).shape[1]
        sums = torch.zeros(1, 1 + 2 * dims, dtype=torch.float64)
        for keys in self._chunks(list(features)):
            frames = torch.cat([features[key] for key in keys])
            sums += context_stats(frames, torch.zeros(len(frames), dtype=torch.int64), 1)
        self.overall = self.team.total(sums)  # count, sum and sum of squares of all frames
        mean, square = (self.overall[0, 1:] / self.overall[0, 0]).split(dims)
        self.variance_floor = (_VARIANCE_FLOOR * (square - mean**2)).float()

    def _chunks(self, keys: Sequence[str]) -> Iterator[list[str]]:
        """Some utterances at a time."""
        chunk: list[str] = []
        frames = 0
        for key in keys:
            chunk.append(key)
            frames += len(self.mfcc[key])
            if frames >= _FRAMES_AT_ONCE:
                yield chunk
                chunk, frames = [], 0
        if chunk:
            yield chunk

    def adapt(self, model: HmmModel, pdf_ids: Mapping[str, Tensor]) -> float:
        """Estimate a transform for each speaker and see the features through it; return the gain, a frame.

        :param pdf_ids: of the utterances that are aligned; silence does not count.
        """
        speech = ~model.silence_pdfs()
        gain, frames = 0.0, 0.0
        transforms: dict[str, Tensor] = {}
        for speaker, keys in self.speakers.items():
            aligned = [key for key in keys if key in pdf_ids]
            transforms[speaker] = identity_transform(self.unadapted[keys[0]].shape[1])
            if not aligned:
                continue
            unadapted, seen, pdfs = (torch.cat([of[key] for key in aligned]) for of in (self.unadapted, self.features, pdf_ids))
            keep = speech[pdfs]
            stats = FmllrStats.of(model.gmm, unadapted[keep], pdfs[keep], transformed=seen[keep])
            if stats.frames:  # a speaker may have been silent
                before = self.transforms.get(speaker, transforms[speaker])
                transforms[speaker] = fmllr(stats, MIN_FRAMES)
                gain += stats.frames * (stats.objective(transforms[speaker]) - stats.objective(before))
                frames += stats.frames
        self.transform(transforms)
        gain, frames = self.team.total(torch.tensor([gain, frames], dtype=torch.float64)).tolist()
        return gain / max(frames, 1.0)

    def equal_alignment(self, model: HmmModel) -> dict[str, Tensor]:
        """Pdf-ids that give every state on a random path through an utterance's words the same time.

        The path takes each optional silence and each pronunciation by its probability, as Kaldi's does: silence forced
        to the edges of utterances that have none there would learn speech. The dice fall by the utterance's id.
        Utterances with fewer frames than states are left out.

        :raises RecipeError: where that leaves none.
        """
        silence = self.lang.phones[self.lang.optional_silence]
        alignments = {}
        for key, words in self.words.items():
            dice = random.Random(key)
            path = [silence] if dice.random() < self.lang.silence.start else []
            for variants in map(self.lang.pronunciations, words):
                (chosen,) = dice.choices(variants, [variant.probability for variant in variants])
                path += [self.lang.phones[name] for name in chosen.phones]
                if dice.random() < chosen.silence_after:
                    path.append(silence)
            pdfs = [model.tree.pdf((phone,), state) for phone in path or [silence] for state in range(model.num_states[phone])]
            frames = len(self.features[key])
            if frames >= len(pdfs):
                alignments[key] = torch.tensor(pdfs)[torch.arange(frames) * len(pdfs) // frames]
        if not alignments:
            raise RecipeError("no utterance has as many frames as its words have HMM states: are the times in seconds?")
        return alignments

    def compile(self, model: HmmModel) -> dict[str, Graph]:
        """The graph of every utterance."""
        aligner = Aligner(model, self.lang)
        return {key: aligner.compile(words) for key, words in self.words.items()}

    def align(self, model: HmmModel, graphs: Mapping[str, Graph], boost_silence: float = 1.0) -> dict[str, Alignment]:
        """Align every utterance.

        :param boost_silence: a factor on the likelihood of silence phones.
        :raises RecipeError: where more than 5 % have too few frames, or all of a process's utterances.
        """
        aligner = Aligner(model, self.lang, boosted(model, boost_silence))
        batch = ((key, features, graphs[key]) for key, features in self._bar(self.features.items(), "align"))
        alignments = dict(aligner.align_features(batch))
        self.alignments = {key: alignment for key, alignment in alignments.items() if alignment is not None}
        if not self.alignments:
            raise RecipeError(f"none of {len(alignments)} utterances, e.g. {next(iter(alignments))}, can be aligned")

        def check(parts: list[tuple[list[str], int]]) -> list[str]:
            failed = sorted(key for keys, _ in parts for key in keys)
            check_share(len(failed), sum(count for _, count in parts), failed, "are too short for their words")
            return failed

        mine = [key for key, alignment in alignments.items() if alignment is None]
        self.failed = self.team.decide((mine, len(alignments)), check)
        return self.alignments

    def accumulate(self, gmm: Gmm, pdf_ids: Mapping[str, Tensor], features: Mapping[str, Tensor] | None = None) -> GmmStats:
        """The E step over all utterances that are aligned.

        :param features: what is summed, where that is not what the mixtures see.
        """

        def accumulated(keys: list[str]) -> GmmStats:
            seen, pdfs = (torch.cat([of[key] for key in keys]) for of in (self.features, pdf_ids))
            if features is None:
                return gmm.accumulate(seen, pdfs)
            return gmm.accumulate(torch.cat([features[key] for key in keys]), pdfs, seen)

        first, *rest = (accumulated(keys) for keys in self._chunks(list(pdf_ids)))
        return self.team.total(sum(rest, first))

    def accumulate_lda(self, num_pdfs: int, context: int) -> LdaStats:
        """Sums for LDA of spliced MFCC between the pdfs of the newest alignment."""
        pdf_ids = pdf_ids_of(self.alignments)
        first, *rest = (
            LdaStats.of(
                torch.cat([splice(torch.from_numpy(self.mfcc[key]), context) for key in keys]),
                torch.cat([pdf_ids[key] for key in keys]),
                num_pdfs,
            )
            for keys in self._chunks(list(pdf_ids))
        )
        return self.team.total(sum(rest, first))

    def decorrelate(self, model: HmmModel, pdf_ids: Mapping[str, Tensor]) -> float:
        """Fold a new MLLT into projection and means; return the gain, a frame."""
        first, *rest = (
            MlltStats.of(model.gmm, *(torch.cat([of[key] for key in keys]) for of in (self.features, pdf_ids)))
            for keys in self._chunks(list(pdf_ids))
        )
        stats = self.team.total(sum(rest, first))
        transform = self.team.decide(None, lambda _: mllt(stats))
        assert self.projection is not None
        self.project((transform @ self.projection.double()).float())
        gmm = model.gmm
        model.gmm = Gmm(gmm.weights, (gmm.means.double() @ transform.T).float(), gmm.variances, gmm.sizes)
        model.projection = self.projection
        return stats.objective(transform) - stats.objective(torch.eye(len(transform)))

    def accumulate_contexts(self, alignments: Mapping[str, Alignment]) -> tuple[dict[str, Tensor], dict[Context, np.ndarray]]:
        """Statistics of one Gaussian for every context that this process's alignments have.

        :return: of each utterance, each frame's place among the contexts ``(frames,)``; of each context in order,
            count, sum and sum of squares ``(1 + 2 D,)``.
        """
        keys = list(alignments)
        rows = np.concatenate(
            [
                np.column_stack([np.repeat(a.windows, [n for *_, n in a.phones], axis=0), a.hmm_states])
                for a in alignments.values()
            ]
        )
        base = rows.max() + 1
        codes = ((rows[:, 0] * base + rows[:, 1]) * base + rows[:, 2]) * base + rows[:, 3]  # one number a context
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        contexts = [(tuple(row[:3]), row[3]) for row in rows[first].tolist()]
        places = torch.from_numpy(inverse).split([len(self.features[key]) for key in keys])
        index = dict(zip(keys, places, strict=True))
        stats = torch.zeros(len(contexts), self.overall.shape[1], dtype=torch.float64)
        for some in self._chunks(keys):
            frames, at = (torch.cat([of[key] for key in some]) for of in (self.features, index))
            stats += context_stats(frames, at, len(contexts))
        return index, dict(zip(contexts, stats.numpy(), strict=True))

    def train(
        self,
        model: HmmModel,
        pdf_ids: dict[str, Tensor],
        conf: StageConf,
        until: int,
        mllt_at: Sequence[int] = (),
        fmllr_at: Sequence[int] = (),
    ) -> HmmModel:
        """Iterate up to ``until``; the log keeps a line an iteration.

        :param pdf_ids: the first alignment; none where the first iteration begins with a new one.
        :param mllt_at: iterations that end with a new MLLT; :param fmllr_at: that begin with new transforms of the speakers.
        """
        graphs = self.compile(model)
        for iteration in self._bar(range(len(self.log) + 1, until + 1), "train"):
            realigned = iteration in conf.realign or not pdf_ids
            if realigned:
                alignments = self.align(model, graphs, conf.boost_silence)
                counts = torch.zeros(model.num_transitions, dtype=torch.float64)
                for alignment in alignments.values():
                    counts += torch.bincount(torch.from_numpy(alignment.transitions), minlength=len(counts))
                model.transitions = model.estimated_transitions(self.team.total(counts))
                pdf_ids = pdf_ids_of(alignments)
                occupancy = torch.bincount(torch.cat(list(pdf_ids.values())), minlength=model.num_pdfs).double()
                model.occupancy = self.team.total(occupancy)
            gain = self.adapt(model, pdf_ids) if iteration in fmllr_at else None
            stats = self.accumulate(model.gmm, pdf_ids)
            model.gmm = self.team.decide(None, lambda _, s=stats: model.gmm.updated(s, self.variance_floor, _MIN_OCCUPANCY))
            if iteration in mllt_at:
                gain = self.decorrelate(model, pdf_ids)
            if iteration < conf.grow_until:
                total = model.num_pdfs + (conf.gaussians - model.num_pdfs) * iteration // (conf.grow_until - 1)
                targets = split_targets(model.occupancy, total, conf.power, conf.min_frames)
                model.gmm = model.gmm.split(torch.maximum(targets, model.gmm.sizes))
            self.log.append(
                {
                    "iteration": iteration,
                    "log_likelihood_per_frame": stats.log_likelihood / stats.frames,
                    "frames": stats.frames,
                    "gaussians": model.gmm.num_gaussians,
                    "realigned": realigned,
                    **({} if gain is None else {"transform_gain_per_frame": gain}),
                }
            )
        if not self.alignments:
            self.align(model, graphs, conf.boost_silence)
        if fmllr_at and until == conf.iterations:
            stats = self.accumulate(model.gmm, pdf_ids, self.unadapted)
            model.unadapted = model.gmm.updated(stats, self.variance_floor, 0.0)
        return model

    def write(self, model: HmmModel, out: Path) -> None:
        """Write the folder of an iteration; the model last, so that it stands for all."""

        def gathered(parts: list[tuple[dict[str, Tensor], AlignmentCounts]]) -> None:
            if transforms := {speaker: w for mine, _ in parts for speaker, w in mine.items()}:
                write_archive(out / "fmllr.scp", ((speaker, transforms[speaker].numpy()) for speaker in sorted(transforms)))
            first, *rest = (counts for _, counts in parts)
            sum(rest, first).write(out, self.failed)
            write_text(out / "log.jsonl", "".join(json.dumps(line) + "\n" for line in self.log))
            model.save(out / "model.pt")

        self.team.decide((self.transforms, AlignmentCounts.of(self.alignments, self.words)), gathered)


@dataclass
class AlignmentCounts:
    """What an alignment came to; adds up over processes."""

    utterances: int
    frames: int
    log_likelihood: float
    durations: dict[str, Counter[int]]  # of each phone: how often it took so many frames
    pronunciations: Counter[Spoken]

    @staticmethod
    def of(alignments: Mapping[str, Alignment], words: Mapping[str, Sequence[str]]) -> AlignmentCounts:
        """Count alignments of utterances of ``words``."""
        durations: dict[str, Counter[int]] = {}
        pronunciations: Counter[Spoken] = Counter()
        for key, alignment in alignments.items():
            for phone, _, frames in alignment.phones:
                durations.setdefault(phone, Counter())[frames] += 1
            pronunciations.update(pronunciations_of(alignment, words[key]))
        frames = sum(len(alignment.pdf_ids) for alignment in alignments.values())
        log_likelihood = sum(alignment.log_likelihood for alignment in alignments.values())
        return AlignmentCounts(len(alignments), frames, log_likelihood, durations, pronunciations)

    def __add__(self, other: AlignmentCounts) -> AlignmentCounts:
        return AlignmentCounts(
            self.utterances + other.utterances,
            self.frames + other.frames,
            self.log_likelihood + other.log_likelihood,
            {
                phone: self.durations.get(phone, Counter()) + other.durations.get(phone, Counter())
                for phone in self.durations | other.durations
            },
            self.pronunciations + other.pronunciations,
        )

    def write(self, out: Path, failed: Sequence[str]) -> None:
        """Write ``pronunciations.txt`` and ``alignment.json``."""
        write_pronunciations(out / "pronunciations.txt", self.pronunciations)
        content = {
            "utterances": self.utterances,
            "failed": failed,
            "frames": self.frames,
            "log_likelihood": self.log_likelihood,
            "durations": {phone: sorted(counts.items()) for phone, counts in sorted(self.durations.items())},
        }
        write_text(out / "alignment.json", json.dumps(content) + "\n")


def context_stats(frames: Tensor, index: Tensor, size: int) -> Tensor:
    """Count, sum and sum of squares of each index's frames: ``(frames, D)``, ``(frames,)`` to ``(size, 1 + 2 D)``."""
    rows = torch.cat([torch.ones(len(frames), 1), frames, frames * frames], dim=1).double()
    return torch.zeros(size, rows.shape[1], dtype=torch.float64).index_add_(0, index, rows)


def boosted(model: HmmModel, factor: float) -> Gmm:
    """The model's mixtures, those of silence phones weighted by ``factor``: more or less is taken for silence."""
    gmm = model.gmm
    weights = torch.where(model.silence_pdfs().repeat_interleave(gmm.sizes), factor * gmm.weights, gmm.weights)
    return Gmm(weights, gmm.means, gmm.variances, gmm.sizes)


def train_mono(trainer: Trainer, before: Path | None, conf: StageConf, until: int) -> HmmModel:
    """Flat start: every pdf begins as the overall Gaussian, every utterance cut evenly.

    :raises RecipeError: where the first iteration is to realign: equal pdfs would only undo the even cut.
    """
    if 1 in conf.realign:
        raise RecipeError(
            "gmm.mono.realign: the first iteration learns from the even cut, before that all pdfs are the same; "
            "realign from iteration 2 on"
        )
    lang = trainer.lang
    silence = set(lang.silence_phones)
    states = {
        number: num_states(lang.topology.silence if name in silence else lang.topology.speech)
        for name, number in lang.phones.items()
    }
    tree = monophone_tree(states)
    gmm = Gmm.single(trainer.overall.expand(tree.num_pdfs, -1), trainer.variance_floor)
    model = _new_model(lang, tree, gmm)
    return trainer.train(model, trainer.equal_alignment(model), conf, until)


def train_tri(trainer: Trainer, before: Path, conf: TriphoneConf, until: int) -> HmmModel:
    """Triphones on deltas: a tree on the alignments of the model ``before``, and its pdfs, from one Gaussian each."""
    model = first_alignments(trainer, before)
    return trainer.train(*grow(trainer, model, conf), conf, until)


def train_lda(trainer: Trainer, before: Path, conf: LdaConf, until: int) -> HmmModel:
    """Triphones on spliced MFCC, projected by LDA between the pdfs of the model ``before`` and decorrelated by MLLT."""
    model = first_alignments(trainer, before)
    stats = trainer.accumulate_lda(model.num_pdfs, conf.context)
    trainer.project(trainer.team.decide(None, lambda _: lda(stats, conf.dims).float()))
    return trainer.train(*grow(trainer, model, conf), conf, until, mllt_at=conf.mllt)


def train_sat(trainer: Trainer, before: Path, conf: SatConf, until: int) -> HmmModel:
    """Triphones on features adapted to each speaker by fMLLR; the first transforms are the model ``before``'s.

    At the end ``unadapted`` gets the same Gaussians from the features as they are before adaptation: for a first pass over
    speakers whose transform is not known yet.
    """
    model = first_alignments(trainer, before)
    trainer.adapt(model, pdf_ids_of(trainer.alignments))
    return trainer.train(*grow(trainer, model, conf), conf, until, fmllr_at=conf.fmllr)


def grow_tree(trainer: Trainer, before: Path, conf: TreeConf, until: int) -> HmmModel:
    """The alignments of the model ``before`` with another tree, a Gaussian a pdf: the targets of a network."""
    model, _ = grow(trainer, first_alignments(trainer, before), conf)
    return model


def first_alignments(trainer: Trainer, before: Path) -> HmmModel:
    """Align by the model of the stage before, on its own features, and return that model."""
    model = read_state(trainer, before)
    trainer.align(model, trainer.compile(model))
    return model


def read_state(trainer: Trainer, folder: Path) -> HmmModel:
    """The model in a folder that :meth:`Trainer.write` has made; the trainer sees the features as it does."""
    model = HmmModel.load(folder / "model.pt")
    if model.projection is not None:
        trainer.project(model.projection)
    if (folder / "fmllr.scp").exists():
        archive = read_archive(folder / "fmllr.scp")
        trainer.transform({speaker: torch.tensor(archive[speaker]) for speaker in trainer.speakers if speaker in archive})
    return model


def pdf_ids_of(alignments: Mapping[str, Alignment]) -> dict[str, Tensor]:
    """The pdf-ids of every utterance, ``(frames,)`` int64."""
    return {key: torch.from_numpy(alignment.pdf_ids).long() for key, alignment in alignments.items()}


def grow(trainer: Trainer, before: HmmModel, conf: TreeConf) -> tuple[HmmModel, dict[str, Tensor]]:
    """A tree for the newest alignment and the features as the trainer sees them, a Gaussian for each of its pdfs, and the
    utterances' pdf-ids."""
    index, stats = trainer.accumulate_contexts(trainer.alignments)
    floor = trainer.variance_floor

    def decision(parts: list[dict[Context, np.ndarray]]) -> Tree:
        together: dict[Context, np.ndarray] = {}
        for part in parts:
            for context, sums in part.items():
                together[context] = together[context] + sums if context in together else sums
        return triphone_tree(together, before, conf, floor.min())

    tree = trainer.team.decide(stats, decision)
    pdf_of = torch.tensor([tree.pdf(window, state) for window, state in stats])
    pooled = torch.zeros(tree.num_pdfs, 1 + 2 * len(floor), dtype=torch.float64)
    pooled = trainer.team.total(pooled.index_add_(0, pdf_of, torch.from_numpy(np.stack(list(stats.values())))))
    model = _new_model(trainer.lang, tree, Gmm.single(pooled, floor))
    model.transitions = before.transitions.clone()
    model.occupancy = pooled[:, 0].clone()
    model.projection = trainer.projection
    return model, {key: pdf_of[places] for key, places in index.items()}


def triphone_tree(stats: Mapping[Context, np.ndarray], model: HmmModel, conf: TreeConf, variance_floor: Tensor) -> Tree:
    """Questions from the middle states' statistics, then the tree; silence phones are not split."""
    phones = sorted(model.num_states)
    dims = len(next(iter(stats.values())))
    by_phone = np.zeros((max(phones) + 1, dims))
    for (window, state), values in stats.items():
        if state == model.num_states[window[1]] // 2:
            by_phone[window[1]] += values
    silence = frozenset(model.phones[name] for name in model.silence_phones)
    floor = float(variance_floor)
    questions = make_questions(by_phone[phones], phones, floor)
    questions += [frozenset({NO_PHONE}), silence | {NO_PHONE}]
    return build_tree(stats, model.num_states, silence, questions, conf.leaves, conf.min_count, floor)


def _new_model(lang: Lang, tree: Tree, gmm: Gmm) -> HmmModel:
    model = HmmModel(
        lang.phones,
        lang.silence_phones,
        lang.topology,
        tree,
        torch.zeros(0),
        gmm,
        torch.ones(tree.num_pdfs, dtype=torch.float64),
    )
    model.transitions = model.initial_transitions()
    return model


_KINDS: dict[str, tuple[type[Any], Callable[[Trainer, Any, Any, int], HmmModel]]] = {
    "mono": (StageConf, train_mono),
    "tri": (TriphoneConf, train_tri),
    "lda": (LdaConf, train_lda),
    "sat": (SatConf, train_sat),
    "tree": (TreeConf, grow_tree),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=_KINDS)
    parser.add_argument("--before", type=Path, help="all but mono: folder of the stage on whose alignments this one starts")
    parser.add_argument("--state", type=Path, help="folder of this stage's iterations so far")
    parser.add_argument("--until", type=int, default=0, help="all but tree: the last iteration to make")
    for name in ("--data", "--feats", "--lang", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--conf", required=True, help="JSON of the stage's conf")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the operations are small: more threads would wait for each other
    kind, begin = _KINDS[options.kind]
    conf = parse_conf(kind, options.conf)
    if not options.state and (options.before is None) != (options.kind == "mono"):
        raise RecipeError("--before is needed, but for mono: triphones start from another model's alignments")
    with Team.join() as team:
        lang, data = Lang.read(options.lang), DataDir.read(options.data)
        trainer = Trainer(team, lang, data, options.feats, getattr(conf, "utterances", None))
        if options.state:
            trainer.log = [json.loads(line) for line in (options.state / "log.jsonl").read_text().splitlines()]
            at = {"mllt_at": getattr(conf, "mllt", ()), "fmllr_at": getattr(conf, "fmllr", ())}
            model = trainer.train(read_state(trainer, options.state), {}, conf, options.until, **at)
        else:
            model = begin(trainer, options.before, conf, options.until)
        trainer.write(model, options.out)


if __name__ == "__main__":
    run(main)
