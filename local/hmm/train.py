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
from local.features import FeatureSet
from local.files import read_archive, write_archive, write_text
from local.hmm.align import Aligner, Alignment, check_share, gmm_input, pronunciations_of, read_inputs, splice
from local.hmm.gmm import Gmm, GmmStats, split_targets
from local.hmm.model import HmmModel
from local.hmm.topology import num_states
from local.hmm.tree import NO_PHONE, Context, Tree, build_tree, make_questions, monophone_tree
from local.lexicon import Lang, Spoken, write_pronunciations
from local.team import Team, added

Value = TypeVar("Value")

_VARIANCE_FLOOR = 0.01  # of the features' overall variance
_MIN_OCCUPANCY = 5.0  # frames below which a Gaussian is given up
_FRAMES_AT_ONCE = 50_000  # of the E step
_MOST_STATES = 9  # of a phone


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
    utterances: int | None  # train on so many, evenly spread; null: on all
    of_shortest: int | None  # take them from so many shortest ones


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


class Seen(Mapping[str, Tensor]):
    """Utterances as a model sees them, ``(frames, D)``, made when asked for: the MFCC take a fraction of the memory."""

    def __init__(
        self,
        mfcc: Mapping[str, np.ndarray],
        projection: Tensor | None,
        speakers: Mapping[str, str],
        transforms: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.mfcc, self.projection, self.speakers, self.transforms = mfcc, projection, speakers, transforms

    def __getitem__(self, key: str) -> Tensor:
        x = gmm_input(self.mfcc[key], self.projection)
        return x if self.transforms is None else apply(self.transforms[self.speakers[key]], x)

    def __iter__(self) -> Iterator[str]:
        return iter(self.mfcc)

    def __len__(self) -> int:
        return len(self.mfcc)


class Trainer:
    """A process's share of the utterances a model is trained on, held in memory."""

    def __init__(
        self,
        team: Team,
        lang: Lang,
        data: Path,
        feats: Path,
        utterances: int | None = None,
        of_shortest: int | None = None,
    ) -> None:
        """:param utterances: take so many of the set ``data``, evenly spread over its ``of_shortest`` shortest ones."""
        self.team, self.lang = team, lang

        def chosen() -> DataDir:
            whole = DataDir.read(data)
            ids = sorted(read_inputs(whole, feats), key=lambda key: (whole.utterances[key].duration, key))[:of_shortest]
            if not ids:
                raise RecipeError("no utterance to train on")
            ids.sort()
            count = min(utterances or len(ids), len(ids))
            return whole.subset(ids[number * len(ids) // count] for number in range(count))

        share = team.share(chosen).utterances
        ids = sorted(share, key=lambda key: (share[key].duration, key))  # fastest to align with neighbours of like length
        self.words = {key: share[key].words for key in ids}
        features = FeatureSet(feats, "mfcc", {key: share[key].recording for key in ids})
        self.mfcc = {key: features[key] for key in self._bar(ids, "read")}
        self.speaker_of = {key: share[key].speaker for key in ids}
        self.speakers: dict[str, list[str]] = {}
        for key, speaker in self.speaker_of.items():
            self.speakers.setdefault(speaker, []).append(key)
        self.log: list[dict[str, Any]] = []
        self.alignments: dict[str, Alignment] = {}  # the newest
        self.failed: list[str] = []  # utterances that it has none of, of all processes
        self.project(None)

    def _bar(self, items: Iterable[Value], name: str) -> Iterable[Value]:
        return tqdm(items, desc=name, mininterval=2, disable=not self.team.leads)

    def project(self, projection: Tensor | None) -> None:
        """See the features through another projection, unadapted."""
        self.projection = projection
        self.unadapted = Seen(self.mfcc, projection, self.speaker_of)
        self.transforms: dict[str, Tensor] = {}
        self._see(self.unadapted)

    def transform(self, transforms: dict[str, Tensor]) -> None:
        """See each speaker's features through a transform.

        :raises RecipeError: where a speaker has none.
        """
        if missing := sorted(set(self.speakers) - set(transforms)):
            raise RecipeError(f"speaker {missing[0]} has no fMLLR transform: train the stage before on all utterances")
        self.transforms = {speaker: transforms[speaker] for speaker in self.speakers}
        self._see(Seen(self.mfcc, self.projection, self.speaker_of, self.transforms))

    def _see(self, features: Seen) -> None:
        self.features = features
        self._variance_floor: Tensor | None = None  # not known yet

    def overall(self) -> Tensor:
        """Count, sum and sum of squares of all processes' frames: ``(1, 1 + 2 D)``."""
        parts = (torch.cat([self.features[key] for key in keys]) for keys in self._chunks(list(self.mfcc)))
        return self.team.total(added(context_stats(x, torch.zeros(len(x), dtype=torch.int64), 1) for x in parts))

    def variance_floor(self) -> Tensor:
        """A share of the variance of all processes' frames: ``(D,)``."""
        if self._variance_floor is None:
            sums = self.overall()[0]
            mean, square = (sums[1:] / sums[0]).chunk(2)
            self._variance_floor = (_VARIANCE_FLOOR * (square - mean**2)).float()
        return self._variance_floor

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
            before = self.transforms.get(speaker, identity_transform(self.unadapted[keys[0]].shape[1]))
            transforms[speaker] = identity_transform(len(before))
            if not aligned:
                continue
            unadapted, pdfs = (torch.cat([of[key] for key in aligned]) for of in (self.unadapted, pdf_ids))
            seen = apply(before, unadapted)
            keep = speech[pdfs.long()]
            stats = FmllrStats.of(model.gmm, unadapted[keep], pdfs[keep].long(), transformed=seen[keep])
            if stats.frames:  # a speaker may have been silent
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
            frames = len(self.mfcc[key])
            if frames >= len(pdfs):
                alignments[key] = torch.tensor(pdfs)[torch.arange(frames) * len(pdfs) // frames]
        if not alignments:
            raise RecipeError("no utterance has as many frames as its words have HMM states: are the times in seconds?")
        return alignments

    def align(self, model: HmmModel, boost_silence: float = 1.0) -> dict[str, Alignment]:
        """Align every utterance.

        :param boost_silence: a factor on the likelihood of silence phones.
        :raises RecipeError: where more than 5 % have too few frames, or all of a process's utterances.
        """
        self.alignments = {}  # room for the new ones
        aligner = Aligner(model, self.lang, boosted(model, boost_silence))
        batch = ((key, self.features[key], aligner.compile(words)) for key, words in self._bar(self.words.items(), "align"))
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
                return gmm.accumulate(seen, pdfs.long())
            return gmm.accumulate(torch.cat([features[key] for key in keys]), pdfs.long(), seen)

        return self.team.total(added(accumulated(keys) for keys in self._chunks(list(pdf_ids))))

    def accumulate_lda(self, num_pdfs: int, context: int) -> LdaStats:
        """Sums for LDA of spliced MFCC between the pdfs of the newest alignment."""
        pdf_ids = pdf_ids_of(self.alignments)
        parts = (
            LdaStats.of(
                torch.cat([splice(torch.from_numpy(self.mfcc[key]), context) for key in keys]),
                torch.cat([pdf_ids[key] for key in keys]).long(),
                num_pdfs,
            )
            for keys in self._chunks(list(pdf_ids))
        )
        return self.team.total(added(parts))

    def decorrelate(self, model: HmmModel, pdf_ids: Mapping[str, Tensor]) -> float:
        """Fold a new MLLT into projection and means; return the gain, a frame."""
        parts = (
            MlltStats.of(
                model.gmm,
                torch.cat([self.features[key] for key in keys]),
                torch.cat([pdf_ids[key] for key in keys]).long(),
            )
            for keys in self._chunks(list(pdf_ids))
        )
        stats = self.team.total(added(parts))
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
        base = max(*self.lang.phones.values(), _MOST_STATES) + 1
        radices = base ** np.arange(3, -1, -1)  # a context as one number
        codes = np.concatenate(
            [np.repeat(a.windows @ radices[:3], [n for *_, n in a.phones]) + a.hmm_states for a in alignments.values()]
        )
        different, inverse = np.unique(codes, return_inverse=True)
        rows = (different[:, None] // radices % base).tolist()
        contexts = [(tuple(row[:3]), row[3]) for row in rows]
        places = torch.from_numpy(inverse.astype(np.int32)).split([len(self.mfcc[key]) for key in keys])
        index = dict(zip(keys, places, strict=True))
        parts = (
            context_stats(
                torch.cat([self.features[key] for key in some]), torch.cat([index[key] for key in some]).long(), len(contexts)
            )
            for some in self._chunks(keys)
        )
        return index, dict(zip(contexts, added(parts).numpy(), strict=True))

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
        for iteration in self._bar(range(len(self.log) + 1, until + 1), "train"):
            realigned = iteration in conf.realign or not pdf_ids
            if realigned:
                alignments = self.align(model, conf.boost_silence)
                counts = torch.zeros(model.num_transitions, dtype=torch.float64)
                for alignment in alignments.values():
                    counts += torch.bincount(torch.from_numpy(alignment.transitions), minlength=len(counts))
                model.transitions = model.estimated_transitions(self.team.total(counts))
                pdf_ids = pdf_ids_of(alignments)
                occupancy = torch.bincount(torch.cat(list(pdf_ids.values())), minlength=model.num_pdfs).double()
                model.occupancy = self.team.total(occupancy)
            gain = self.adapt(model, pdf_ids) if iteration in fmllr_at else None
            stats = self.accumulate(model.gmm, pdf_ids)
            floor = self.variance_floor()
            model.gmm = self.team.decide(None, lambda _, s=stats, f=floor: model.gmm.updated(s, f, _MIN_OCCUPANCY))
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
            self.align(model, conf.boost_silence)
        if fmllr_at and until == conf.iterations:
            stats = self.accumulate(model.gmm, pdf_ids, self.unadapted)
            model.unadapted = model.gmm.updated(stats, self.variance_floor(), 0.0)
        return model

    def write(self, model: HmmModel, out: Path) -> None:
        """Write the folder of an iteration; the model last, so that it stands for all."""

        def gathered(parts: list[tuple[dict[str, Tensor], AlignmentCounts]]) -> None:
            if transforms := {speaker: w for mine, _ in parts for speaker, w in mine.items()}:
                write_archive(out / "fmllr.scp", ((speaker, transforms[speaker].numpy()) for speaker in sorted(transforms)))
            added(counts for _, counts in parts).write(out, self.failed)
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
    gmm = Gmm.single(trainer.overall().expand(tree.num_pdfs, -1), trainer.variance_floor())
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
    trainer.align(model)
    return model


def read_state(trainer: Trainer, folder: Path, adapted: bool = False) -> HmmModel:
    """The model in a folder that :meth:`Trainer.write` has made; the trainer sees the features as it does.

    :param adapted: it is trained on adapted features, though no unadapted mixtures stand beside it yet.
    """
    model = HmmModel.load(folder / "model.pt")
    if model.projection is not None:
        trainer.project(model.projection)
    if adapted or model.unadapted is not None:
        archive = read_archive(folder / "fmllr.scp")
        trainer.transform({speaker: torch.tensor(archive[speaker]) for speaker in trainer.speakers if speaker in archive})
    return model


def pdf_ids_of(alignments: Mapping[str, Alignment]) -> dict[str, Tensor]:
    """The pdf-ids of every utterance, ``(frames,)`` int32."""
    return {key: torch.from_numpy(alignment.pdf_ids) for key, alignment in alignments.items()}


def grow(trainer: Trainer, before: HmmModel, conf: TreeConf) -> tuple[HmmModel, dict[str, Tensor]]:
    """A tree for the newest alignment and the features as the trainer sees them, a Gaussian for each of its pdfs, and the
    utterances' pdf-ids."""
    index, stats = trainer.accumulate_contexts(trainer.alignments)
    floor = trainer.variance_floor()

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
    return model, {key: pdf_of[places.long()].int() for key, places in index.items()}


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
    if isinstance(conf, StageConf) and not 0 < options.until <= conf.iterations:
        raise RecipeError(f"--until: expected one of the stage's {conf.iterations} iterations, found {options.until}")
    with Team.join() as team:
        lang = Lang.read(options.lang)
        some = (conf.utterances, conf.of_shortest) if isinstance(conf, StageConf) else ()
        trainer = Trainer(team, lang, options.data, options.feats, *some)
        if options.state:
            trainer.log = [json.loads(line) for line in (options.state / "log.jsonl").read_text().splitlines()]
            at = {"mllt_at": getattr(conf, "mllt", ()), "fmllr_at": getattr(conf, "fmllr", ())}
            state = read_state(trainer, options.state, adapted=options.kind == "sat")
            model = trainer.train(state, {}, conf, options.until, **at)
        else:
            model = begin(trainer, options.before, conf, options.until)
        if isinstance(conf, StageConf):
            trainer.write(model, options.out)
        elif team.leads:
            model.save(options.out / "model.pt")


if __name__ == "__main__":
    run(main)
