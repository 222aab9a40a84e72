"""Training of GMM-HMMs by Viterbi: a flat-start monophone stage, then triphones on a decision tree, plain and adapted.

    python -m local.hmm.train mono --data D --feats F --lang L --conf '{...}' --out align/mono
    python -m local.hmm.train tri --model align/mono/model.pt --data D --feats F --lang L --conf '{...}' --out align/tri
    python -m local.hmm.train lda --model align/tri/model.pt ...      LDA and MLLT
    python -m local.hmm.train sat --model align/lda/model.pt ...      and fMLLR of each speaker

Within fixed alignments an iteration is one step of EM; at some iterations the utterances are aligned anew. Statistics
add up (:class:`local.hmm.gmm.GmmStats`), so that later stages can share the utterances out to jobs.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from local.adaptation.linear import MIN_FRAMES, FmllrStats, LdaStats, MlltStats, apply, fmllr, identity_transform, lda, mllt
from local.cli import RecipeError, parse_conf, run
from local.datadir import DataDir
from local.files import write_text
from local.hmm.align import Aligner, Alignment, Graph, check_share, gmm_input, read_inputs, splice
from local.hmm.gmm import Gmm, GmmStats, split_targets
from local.hmm.model import HmmModel
from local.hmm.topology import num_states
from local.hmm.tree import NO_PHONE, Context, Tree, build_tree, make_questions, monophone_tree
from local.lexicon import Lang

_VARIANCE_FLOOR = 0.01  # of the features' overall variance
_MIN_OCCUPANCY = 5.0  # frames below which a Gaussian is given up
_FRAMES_AT_ONCE = 50_000  # of the E step


@dataclass(frozen=True)
class StageConf:
    """How a stage is trained."""

    iterations: int
    realign: tuple[int, ...]  # iterations, from 1, that begin with a new alignment
    gaussians: int  # in all, once grown
    grow_until: int  # the iteration by which they are there
    power: float  # of a pdf's occupancy, by which the Gaussians are shared out
    min_frames: float  # that a Gaussian shall have on average
    utterances: int | None  # train on so many, the shortest; null: on all


@dataclass(frozen=True)
class TriphoneConf(StageConf):
    """How a triphone stage is trained."""

    leaves: int  # the tree's, at most
    min_count: float  # frames that each side of a split must have


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
    """The utterances a model is trained on, held in memory, as the model sees them."""

    def __init__(self, lang: Lang, data: DataDir, feats: Path, utterances: int | None) -> None:
        self.lang = lang
        features = read_inputs(data, feats)
        ids = sorted(features, key=lambda key: (data.utterances[key].end - data.utterances[key].start, key))
        self.words = {key: data.utterances[key].words for key in ids[:utterances]}
        self.mfcc = {key: features[key] for key in tqdm(self.words, desc="read", mininterval=2)}
        if not self.mfcc:
            raise RecipeError("no utterance to train on")
        self.speakers: dict[str, list[str]] = {}
        for key in self.words:
            self.speakers.setdefault(data.utterances[key].speaker, []).append(key)
        self.log: list[dict[str, Any]] = []
        self.project(None)

    def project(self, projection: Tensor | None) -> None:
        """See the features through another projection, unadapted."""
        self.projection = projection
        self.unadapted = {key: gmm_input(features, projection) for key, features in self.mfcc.items()}
        self._see(self.unadapted)

    def _see(self, features: dict[str, Tensor]) -> None:
        self.features = features
        frames = torch.cat(list(features.values()))
        self.variance_floor = _VARIANCE_FLOOR * frames.var(0)

    def overall(self) -> Tensor:
        """Count, sum and sum of squares of all frames: ``(1, 1 + 2 D)``."""
        frames = torch.cat(list(self.features.values()))
        return context_stats(frames, torch.zeros(len(frames), dtype=torch.int64), 1)

    def adapt(self, model: HmmModel, pdf_ids: Mapping[str, Tensor]) -> float:
        """Estimate a transform for each speaker and see the features through it; return the gain, a frame.

        :param pdf_ids: of the utterances that are aligned; silence does not count.
        """
        speech = ~model.silence_pdfs()
        gain, frames = 0.0, 0.0
        adapted: dict[str, Tensor] = {}
        for keys in self.speakers.values():
            aligned = [key for key in keys if key in pdf_ids]
            transform = identity_transform(self.unadapted[keys[0]].shape[1])
            if aligned:
                unadapted, seen, pdfs = (
                    torch.cat([of[key] for key in aligned]) for of in (self.unadapted, self.features, pdf_ids)
                )
                keep = speech[pdfs]
                stats = FmllrStats.of(model.gmm, unadapted[keep], pdfs[keep], transformed=seen[keep])
                if stats.frames:  # a speaker may have been silent
                    before, transform = transform, fmllr(stats, MIN_FRAMES)
                    gain += stats.frames * (stats.objective(transform) - stats.objective(before))
                    frames += stats.frames
            adapted |= {key: apply(transform, self.unadapted[key]) for key in keys}
        self._see(adapted)
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
            path: list[int] = []
            for variants in [[], *(self.lang.pronunciations(word) for word in words)]:
                if variants:
                    probabilities, spelled = zip(*variants, strict=True)
                    path += [self.lang.phones[name] for name in dice.choices(spelled, probabilities)[0]]
                if dice.random() < self.lang.silence_probability:
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

    def align(self, model: HmmModel, graphs: Mapping[str, Graph]) -> dict[str, Alignment]:
        """Align every utterance.

        :raises RecipeError: where more than 5 % have too few frames.
        """
        aligner = Aligner(model, self.lang)
        batch = ((key, features, graphs[key]) for key, features in tqdm(self.features.items(), desc="align", mininterval=2))
        alignments = dict(aligner.align_features(batch))
        failed = [key for key, alignment in alignments.items() if alignment is None]
        check_share(len(failed), len(alignments), failed, "are too short for their words")
        return {key: alignment for key, alignment in alignments.items() if alignment is not None}

    def accumulate(self, gmm: Gmm, pdf_ids: Mapping[str, Tensor]) -> GmmStats:
        """The E step over all utterances that are aligned."""
        keys = list(pdf_ids)
        features = torch.cat([self.features[key] for key in keys])
        pdfs = torch.cat([pdf_ids[key] for key in keys])
        parts = zip(features.split(_FRAMES_AT_ONCE), pdfs.split(_FRAMES_AT_ONCE), strict=True)
        first, *rest = (gmm.accumulate(x, pdf) for x, pdf in parts)
        return sum(rest, first)

    def on_unadapted(self, gmm: Gmm, pdf_ids: Mapping[str, Tensor]) -> Gmm:
        """The Gaussians of ``gmm`` estimated anew on unadapted features, each from the frames it has on adapted ones."""
        keys = list(pdf_ids)
        seen, plain, pdfs = (torch.cat([of[key] for key in keys]) for of in (self.features, self.unadapted, pdf_ids))
        return gmm.updated(gmm.accumulate(plain, pdfs, seen), _VARIANCE_FLOOR * plain.var(0), 0.0)

    def decorrelate(self, model: HmmModel, pdf_ids: Mapping[str, Tensor]) -> float:
        """Fold a new MLLT into projection and means; return the gain, a frame."""
        keys = list(pdf_ids)
        features = torch.cat([self.features[key] for key in keys])
        stats = MlltStats.of(model.gmm, features, torch.cat([pdf_ids[key] for key in keys]))
        transform = mllt(stats)
        assert self.projection is not None
        self.project((transform @ self.projection.double()).float())
        gmm = model.gmm
        model.gmm = Gmm(gmm.weights, (gmm.means.double() @ transform.T).float(), gmm.variances, gmm.sizes)
        model.projection = self.projection
        return stats.objective(transform) - stats.objective(torch.eye(len(transform)))

    def accumulate_contexts(self, alignments: Mapping[str, Alignment]) -> tuple[dict[str, Tensor], dict[Context, np.ndarray]]:
        """Statistics of one Gaussian for every context that the alignments have: jobs' results add up by context.

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
        places = torch.from_numpy(inverse)
        stats = context_stats(torch.cat([self.features[key] for key in keys]), places, len(contexts))
        index = dict(zip(keys, places.split([len(self.features[key]) for key in keys]), strict=True))
        return index, dict(zip(contexts, stats.numpy(), strict=True))

    def train(
        self,
        model: HmmModel,
        pdf_ids: dict[str, Tensor],
        conf: StageConf,
        mllt_at: Sequence[int] = (),
        fmllr_at: Sequence[int] = (),
    ) -> HmmModel:
        """Iterate from a first alignment; the log keeps a line an iteration.

        :param mllt_at: iterations that end with a new MLLT; :param fmllr_at: that begin with new transforms of the speakers.
        """
        graphs = self.compile(model)
        for iteration in tqdm(range(1, conf.iterations + 1), desc="train"):
            realigned = iteration in conf.realign
            if realigned:
                alignments = self.align(model, graphs)
                counts = torch.zeros(model.num_transitions, dtype=torch.float64)
                for alignment in alignments.values():
                    counts += torch.bincount(torch.from_numpy(alignment.transitions), minlength=len(counts))
                model.transitions = model.estimated_transitions(counts)
                pdf_ids = pdf_ids_of(alignments)
                model.occupancy = torch.bincount(torch.cat(list(pdf_ids.values())), minlength=model.num_pdfs).double()
            gain = self.adapt(model, pdf_ids) if iteration in fmllr_at else None
            stats = self.accumulate(model.gmm, pdf_ids)
            model.gmm = model.gmm.updated(stats, self.variance_floor, _MIN_OCCUPANCY)
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
        return model


def context_stats(frames: Tensor, index: Tensor, size: int) -> Tensor:
    """Count, sum and sum of squares of each index's frames: ``(frames, D)``, ``(frames,)`` to ``(size, 1 + 2 D)``."""
    rows = torch.cat([torch.ones(len(frames), 1), frames, frames * frames], dim=1).double()
    return torch.zeros(size, rows.shape[1], dtype=torch.float64).index_add_(0, index, rows)


def train_mono(trainer: Trainer, conf: StageConf) -> HmmModel:
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
    gmm = Gmm.single(trainer.overall().expand(tree.num_pdfs, -1), trainer.variance_floor)
    model = _new_model(lang, tree, gmm)
    return trainer.train(model, trainer.equal_alignment(model), conf)


def train_tri(trainer: Trainer, before: HmmModel, conf: TriphoneConf) -> HmmModel:
    """Triphones on deltas: a tree on the alignments of the model ``before``, and its pdfs, from one Gaussian each."""
    return trainer.train(*grow(trainer, first_alignments(trainer, before), before, conf), conf)


def train_lda(trainer: Trainer, before: HmmModel, conf: LdaConf) -> HmmModel:
    """Triphones on spliced MFCC, projected by LDA between the pdfs of the model ``before`` and decorrelated by MLLT."""
    alignments = first_alignments(trainer, before)
    parts = (
        LdaStats.of(splice(torch.from_numpy(trainer.mfcc[key]), conf.context), pdfs, before.num_pdfs)
        for key, pdfs in pdf_ids_of(alignments).items()
    )
    first = next(parts)
    trainer.project(lda(sum(parts, first), conf.dims).float())  # one at a time: each is as large as the sum
    return trainer.train(*grow(trainer, alignments, before, conf), conf, mllt_at=conf.mllt)


def train_sat(trainer: Trainer, before: HmmModel, conf: SatConf) -> HmmModel:
    """Triphones on features adapted to each speaker by fMLLR; the first transforms are the model ``before``'s.

    ``unadapted`` gets the same Gaussians from the features as they are before adaptation: for a first pass over speakers
    whose transform is not known yet.
    """
    alignments = first_alignments(trainer, before)
    trainer.adapt(before, pdf_ids_of(alignments))
    model = trainer.train(*grow(trainer, alignments, before, conf), conf, fmllr_at=conf.fmllr)
    model.unadapted = trainer.on_unadapted(model.gmm, pdf_ids_of(trainer.align(model, trainer.compile(model))))
    return model


def first_alignments(trainer: Trainer, before: HmmModel) -> dict[str, Alignment]:
    """Alignments by the model of the stage before, on its own features."""
    if before.projection is not None:  # the trainer begins with none
        trainer.project(before.projection)
    return trainer.align(before, trainer.compile(before))


def pdf_ids_of(alignments: Mapping[str, Alignment]) -> dict[str, Tensor]:
    """The pdf-ids of every utterance, ``(frames,)`` int64."""
    return {key: torch.from_numpy(alignment.pdf_ids).long() for key, alignment in alignments.items()}


def grow(
    trainer: Trainer, alignments: Mapping[str, Alignment], before: HmmModel, conf: TriphoneConf
) -> tuple[HmmModel, dict[str, Tensor]]:
    """A tree for the features as the trainer sees them, a Gaussian for each of its pdfs, and the utterances' pdf-ids."""
    index, stats = trainer.accumulate_contexts(alignments)
    contexts = list(stats)
    tree = triphone_tree(stats, before, conf, trainer.variance_floor.min())
    pdf_of = torch.tensor([tree.pdf(window, state) for window, state in contexts])
    pooled = torch.zeros(tree.num_pdfs, 1 + 2 * len(trainer.variance_floor), dtype=torch.float64)
    pooled.index_add_(0, pdf_of, torch.from_numpy(np.stack(list(stats.values()))))
    model = _new_model(trainer.lang, tree, Gmm.single(pooled, trainer.variance_floor))
    model.transitions = before.transitions.clone()
    model.occupancy = pooled[:, 0].clone()
    model.projection = trainer.projection
    return model, {key: pdf_of[places] for key, places in index.items()}


def triphone_tree(stats: Mapping[Context, np.ndarray], model: HmmModel, conf: TriphoneConf, variance_floor: Tensor) -> Tree:
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


_STAGES: dict[str, tuple[type[TriphoneConf], Callable[[Trainer, HmmModel, Any], HmmModel]]] = {
    "tri": (TriphoneConf, train_tri),
    "lda": (LdaConf, train_lda),
    "sat": (SatConf, train_sat),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=["mono", *_STAGES])
    parser.add_argument("--model", type=Path, help="all but mono: the model whose alignments the tree is built on")
    for name in ("--data", "--feats", "--lang", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--conf", required=True, help="JSON of the stage's conf")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the operations are small: more threads would wait for each other
    lang, data = Lang.read(options.lang), DataDir.read(options.data)
    if options.stage == "mono":
        conf = parse_conf(StageConf, options.conf)
        trainer = Trainer(lang, data, options.feats, conf.utterances)
        model = train_mono(trainer, conf)
    else:
        kind, training = _STAGES[options.stage]
        conf = parse_conf(kind, options.conf)
        if options.model is None:
            raise RecipeError("--model is needed: triphones start from another model's alignments")
        trainer = Trainer(lang, data, options.feats, conf.utterances)
        model = training(trainer, HmmModel.load(options.model), conf)
    write_text(options.out / "log.jsonl", "".join(json.dumps(line) + "\n" for line in trainer.log))
    model.save(options.out / "model.pt")


if __name__ == "__main__":
    run(main)
