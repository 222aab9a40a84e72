"""Forced alignment: the best path of an utterance's frames through the HMM states of its words.

    python -m local.hmm.align --model align/tri4/35/model.pt --data D --feats F --lang L --job 0 --jobs 4 --out ali/0
    python -m local.hmm.align --join ali/0 ali/1 ... --data D --out ali

An utterance's graph holds every pronunciation of its words and optional silence around them. Viterbi runs over the
states of many graphs laid end to end, a frame of each at a step, and only the mixtures that a graph needs are evaluated.
There is no beam, so none is too narrow: an utterance fails only where it has fewer frames than its shortest path.
Beam search (kaldi-decoder) on the same graphs is no faster: benchmarks/align.py measures both.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import shutil
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from local.adaptation.linear import apply
from local.adaptation.speakers import speaker_transform
from local.cli import RecipeError, run
from local.datadir import DataDir
from local.features import FRAME_SHIFT, FeatureSet, add_deltas
from local.files import atomic_path, join_archives, write_archive, write_text
from local.hmm.gmm import Gmm
from local.hmm.model import HmmModel
from local.hmm.tree import NO_PHONE
from local.lexicon import END, START, Lang, Pronunciation, Spoken

MAX_FAILED = 0.05  # of the utterances
_CELLS_AT_ONCE = 3_000_000  # frames times states of the utterances aligned together
_NOT_A_WORD = -1


@dataclass
class Graph:
    """What an utterance may go through: N phones in context, of S emitting states, and A arcs between the states."""

    pdf: np.ndarray  # (S,)
    phone_of: np.ndarray  # (S,) place of the state's phone in context
    phone: np.ndarray  # (N,) phone ids
    word: np.ndarray  # (N,) place of the word in the utterance; -1 in optional silence
    source: np.ndarray  # (A,)
    target: np.ndarray  # (A,) ascending; every state is some arc's target
    transition: np.ndarray  # (A,) place in the model's transitions
    bonus: np.ndarray  # (A,) log-probability of pronunciation and silence; -inf on an arc that only fills a gap
    initial: np.ndarray  # (S,) log-probability of starting there
    final: np.ndarray  # (S,) log-probability of pronunciation and silence on leaving the utterance there
    final_transition: np.ndarray  # (S,) the transition by which it is left


@dataclass
class Alignment:
    """Where the frames of an utterance went."""

    pdf_ids: np.ndarray  # (frames,) int32
    phones: list[tuple[str, int, int]]  # phone, first frame, frames
    words: list[tuple[int, int, int]]  # place of the word in the utterance, first frame, frames
    log_likelihood: float  # of the best path, transitions and pronunciations included
    transitions: np.ndarray  # (frames,) the transition by which each frame's state was left
    windows: np.ndarray  # (phones, 3) phone ids before, of and behind each phone
    hmm_states: np.ndarray  # (frames,) place of each frame's state in its phone

    def pdf_ids_of(self, model: HmmModel) -> np.ndarray:
        """The pdf-ids of the same states by the tree of a triphone model, ``(frames,)`` int32."""
        windows = np.repeat(self.windows, [n for *_, n in self.phones], axis=0)
        states, frames = np.unique(np.column_stack([windows, self.hmm_states]), axis=0, return_inverse=True)
        return np.array([model.tree.pdf(tuple(row[:3]), row[3]) for row in states.tolist()], np.int32)[frames]


@dataclass
class _Slots:
    """Phones that may follow each other, before they are set in context."""

    phone: list[int]
    word: list[int]
    edges: list[tuple[int, int, float]]  # from, to, log-probability; from -1: the start, to -1: the end


def _slots(words: Sequence[Sequence[Pronunciation]], lang: Lang) -> _Slots:
    """Lay out the words' pronunciations with optional silence before, between and behind, at the costs that L has.

    :param words: the pronunciations of each word; no words: silence alone.
    """
    slots = _Slots([], [], [])

    def chain(names: Sequence[str], word: int, entries: list[tuple[int, float]]) -> int:
        """Add phones in a row, entered from these slots at these log-probabilities; return the last slot."""
        for name in names:
            here = len(slots.phone)
            slots.phone.append(lang.phones[name])
            slots.word.append(word)
            slots.edges += [(before, here, score) for before, score in entries]
            entries = [(here, 0.0)]
        return entries[0][0]

    def leave(ends: list[tuple[int, float]]) -> tuple[list[tuple[int, float]], int]:
        """Add silence; return the ways out that avoid it, with their log-probabilities, and silence's slot."""
        silence = chain([lang.optional_silence], _NOT_A_WORD, [(end, math.log(after)) for end, after in ends])
        return [(end, math.log1p(-after)) for end, after in ends], silence

    if not words:
        only = chain([lang.optional_silence], _NOT_A_WORD, [(-1, 0.0)])
        slots.edges.append((only, -1, 0.0))
        return slots
    ends = [(-1, lang.silence.start)]  # open ends of what stands so far, and the probability of silence behind each
    for place, variants in enumerate(words):
        without, silence = leave(ends)
        ends = []
        for variant in variants:
            no_silence_score = math.log(variant.probability * variant.no_silence_before)
            entries = [(end, score + no_silence_score) for end, score in without]
            entries.append((silence, math.log(variant.probability * variant.silence_before)))
            ends.append((chain(variant.phones, place, entries), variant.silence_after))
    without, silence = leave(ends)
    slots.edges += [(end, -1, score + math.log(lang.silence.none_before_end)) for end, score in without]
    slots.edges.append((silence, -1, math.log(lang.silence.before_end)))
    return slots


class Aligner:
    """Aligns utterances with a model's HMMs; the log-likelihoods may come from the model or from a network."""

    def __init__(self, model: HmmModel, lang: Lang, gmm: Gmm | None = None) -> None:
        """:param gmm: takes the place of the model's own mixtures."""
        self.model = model
        self.gmm = gmm or model.gmm
        self.lang = lang
        self._names = {number: name for name, number in lang.phones.items()}
        self._hmm = lru_cache(maxsize=None)(model.hmm)

    def compile(self, words: Sequence[str]) -> Graph:
        """Build the graph of a word sequence; words without a pronunciation take the unknown word's."""
        return self._expand(_slots([self.lang.pronunciations(word) for word in words], self.lang))

    def _expand(self, slots: _Slots) -> Graph:
        """Set the phones in context and replace each by its HMM's states."""
        wide = self.model.context_width > 1
        phone_at = [*slots.phone, NO_PHONE]  # place -1, the start or the end, is no phone
        lefts: list[set[int]] = [set() for _ in phone_at]
        rights: list[set[int]] = [set() for _ in phone_at]
        for before, after, _ in slots.edges:
            lefts[after].add(phone_at[before] if wide else NO_PHONE)
            rights[before].add(phone_at[after] if wide else NO_PHONE)
        place: dict[tuple[int, int, int], int] = {}  # slot, left, right
        for slot in range(len(slots.phone)):
            for left in sorted(lefts[slot]):
                for right in sorted(rights[slot]):
                    place[slot, left, right] = len(place)
        pdf: list[int] = []
        phone_of: list[int] = []
        arcs: list[tuple[int, int, int, float]] = []  # target, source, transition, bonus
        first_state: list[int] = []
        exits: list[list[tuple[int, int]]] = []  # of each phone in context: (state, transition) that leave it
        for (slot, left, right), number in place.items():
            window = (left, slots.phone[slot], right) if wide else (slots.phone[slot],)
            hmm = self._hmm(window)
            base = len(pdf)
            last = max(arc.target for arc in hmm)
            first_state.append(base)
            pdf += [0] * last
            phone_of += [number] * last
            leaving = []
            for arc in hmm:
                pdf[base + arc.source] = arc.pdf
                if arc.target == last:
                    leaving.append((base + arc.source, arc.transition))
                else:
                    arcs.append((base + arc.target, base + arc.source, arc.transition, 0.0))
            exits.append(leaving)
        initial = np.full(len(pdf), -np.inf)
        final = np.full(len(pdf), -np.inf)
        final_transition = np.zeros(len(pdf), dtype=np.int64)
        for before, after, score in slots.edges:
            right_of_before = phone_at[after] if wide else NO_PHONE
            left_of_after = phone_at[before] if wide else NO_PHONE
            sources = [place[before, left, right_of_before] for left in lefts[before]] if before >= 0 else []
            targets = [place[after, left_of_after, right] for right in rights[after]] if after >= 0 else []
            if before < 0:
                initial[[first_state[target] for target in targets]] = score
            for source in sources:
                for state, transition in exits[source]:
                    if after < 0:
                        final[state], final_transition[state] = score, transition
                    arcs += [(first_state[target], state, transition, score) for target in targets]
        entered = {arc[0] for arc in arcs}
        arcs += [(state, state, 0, -math.inf) for state in range(len(pdf)) if state not in entered]
        arcs.sort(key=lambda arc: arc[0])
        target, source, transition, bonus = zip(*arcs, strict=True)
        return Graph(
            np.array(pdf),
            np.array(phone_of),
            np.array([slots.phone[slot] for slot, _, _ in place]),
            np.array([slots.word[slot] for slot, _, _ in place]),
            np.array(source),
            np.array(target),
            np.array(transition),
            np.array(bonus),
            initial,
            final,
            final_transition,
        )

    def align(self, batch: Iterable[tuple[str, np.ndarray, Graph]]) -> Iterator[tuple[str, Alignment | None]]:
        """Align utterances by given log-likelihoods; fastest where neighbours are of like length.

        :param batch: id, log-likelihoods ``(frames, pdfs)`` float32, graph.
        :return: in the same order, id and alignment; ``None`` where the frames are too few for the words.
        """
        return self._align((key, scores[:, graph.pdf], graph) for key, scores, graph in batch)

    def align_features(self, batch: Iterable[tuple[str, Tensor, Graph]]) -> Iterator[tuple[str, Alignment | None]]:
        """Align utterances by the model's own mixtures, of which only those that a graph needs are evaluated.

        :param batch: id, features ``(frames, D)``, graph; otherwise as :meth:`align`.
        """

        def emissions(features: Tensor, graph: Graph) -> np.ndarray:
            pdfs, column = np.unique(graph.pdf, return_inverse=True)
            return self.gmm.log_likelihoods(features, torch.from_numpy(pdfs)).numpy()[:, column]

        return self._align((key, emissions(features, graph), graph) for key, features, graph in batch)

    def _align(self, batch: Iterable[tuple[str, np.ndarray, Graph]]) -> Iterator[tuple[str, Alignment | None]]:
        """Take the utterances, with log-likelihoods ``(frames, states)``, some at a time."""
        pending: list[tuple[str, np.ndarray, Graph]] = []
        longest = states = 0
        for item in batch:
            frames, width = item[1].shape
            if pending and max(longest, frames) * (states + width) > _CELLS_AT_ONCE:
                yield from self._align_together(pending)
                pending, longest, states = [], 0, 0
            pending.append(item)
            longest, states = max(longest, frames), states + width
        if pending:
            yield from self._align_together(pending)

    def _align_together(self, batch: list[tuple[str, np.ndarray, Graph]]) -> Iterator[tuple[str, Alignment | None]]:
        paths = viterbi([(emissions, graph) for _, emissions, graph in batch], self.model.transitions.numpy())
        for (key, _, graph), path in zip(batch, paths, strict=True):
            yield key, None if path is None else self._alignment(graph, *path)

    def _alignment(self, graph: Graph, states: np.ndarray, arcs: np.ndarray, score: float) -> Alignment:
        places = graph.phone_of[states]
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        lengths = np.diff(starts, append=len(places))
        phones: list[tuple[str, int, int]] = []
        words: list[tuple[int, int, int]] = []
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            place = places[start]
            word = int(graph.word[place])
            phones.append((self._names[int(graph.phone[place])], start, length))
            if word != _NOT_A_WORD:
                if words and words[-1][0] == word:
                    words[-1] = (word, words[-1][1], words[-1][2] + length)
                else:
                    words.append((word, start, length))
        ids = np.concatenate(([NO_PHONE], graph.phone[places[starts]], [NO_PHONE]))
        return Alignment(
            pdf_ids=graph.pdf[states].astype(np.int32),
            phones=phones,
            words=words,
            log_likelihood=score,
            transitions=np.append(graph.transition[arcs], graph.final_transition[states[-1]]),
            windows=np.stack([ids[:-2], ids[1:-1], ids[2:]], axis=1),
            hmm_states=states - np.searchsorted(graph.phone_of, places),
        )


def viterbi(
    batch: Sequence[tuple[np.ndarray, Graph]], transitions: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, float] | None]:
    """Find the best path of each utterance.

    The graphs lie end to end, their states in order of the number of arcs that lead there, most first: then the k-th
    arcs lead to a leading stretch of the states, and a frame is a handful of vector operations over all graphs.
    Utterances that are over run on to the longest one's end; nobody looks at what they do there.

    :param batch: log-likelihoods ``(frames, states)`` and graph of each.
    :param transitions: the model's log-probabilities.
    :return: of each, states ``(frames,)``, arcs between them ``(frames - 1,)`` and the path's score; ``None`` where no
        path has that few frames.
    """
    graphs = [graph for _, graph in batch]
    frames = np.array([len(emissions) for emissions, _ in batch])
    first_state = np.cumsum([0, *(len(graph.pdf) for graph in graphs)])
    first_arc = np.cumsum([0, *(len(graph.target) for graph in graphs)])
    target = np.concatenate([graph.target + base for graph, base in zip(graphs, first_state, strict=False)])
    source = np.concatenate([graph.source + base for graph, base in zip(graphs, first_state, strict=False)])
    weight = np.concatenate([transitions[graph.transition] + graph.bonus for graph in graphs])
    degree = np.bincount(target, minlength=first_state[-1])
    order = np.argsort(-degree, kind="stable")  # the state at each place
    place = np.argsort(order)  # the place of each state
    first_into = (np.cumsum(degree) - degree)[order]
    arc = first_into[:, None] + np.minimum(np.arange(degree.max()), degree[order, None] - 1)  # (places, most arcs)
    source = place[source]
    ranks = []  # sources and weights of the places' k-th arcs
    for rank in range(arc.shape[1]):
        kth = arc[: np.count_nonzero(degree > rank), rank]
        ranks.append((source[kth], weight[kth]))

    best = np.zeros((frames.max(initial=1), len(order)))  # the emissions; then the score of the best path to there
    for (emissions, _), here, there in zip(batch, first_state, first_state[1:], strict=False):
        best[: len(emissions), place[here:there]] = emissions
    best[0, place] += np.concatenate([graph.initial for graph in graphs])
    for before, now in itertools.pairwise(best):
        (sources, weights), *more = ranks
        reached = before.take(sources)
        reached += weights
        for sources, weights in more:
            others = before.take(sources)
            others += weights
            np.maximum(reached[: len(others)], others, out=reached[: len(others)])
        now += reached

    # from every utterance's end back to its start, all at once, asking again which arc was the best
    count = len(graphs)
    current = np.zeros(count, dtype=np.int64)
    totals = np.full(count, -np.inf)
    for i, graph in enumerate(graphs):
        if frames[i]:
            mine = place[first_state[i] : first_state[i + 1]]
            ends = best[frames[i] - 1, mine] + graph.final + transitions[graph.final_transition]
            current[i], totals[i] = mine[ends.argmax()], ends.max()
    places = np.empty((len(best), count), dtype=np.int64)
    arcs = np.empty((len(best), count), dtype=np.int64)
    places[-1] = current
    for frame in range(len(best) - 1, 0, -1):
        into = arc[current]
        choice = (best[frame - 1].take(source.take(into)) + weight.take(into)).argmax(1)
        arcs[frame] = into[np.arange(count), choice]
        current = np.where(frame < frames, source[arcs[frame]], current)
        places[frame - 1] = current
    states = order[places]
    return [
        (states[: frames[i], i] - first_state[i], arcs[1 : frames[i], i] - first_arc[i], float(totals[i]))
        if np.isfinite(totals[i])
        else None
        for i in range(count)
    ]


def pronunciations_of(alignment: Alignment, words: Sequence[str]) -> list[Spoken]:
    """The words of an utterance and its end, as spoken; of one without words nothing, for its silence is no choice."""
    if not words:
        return []
    starts = [*(start for _, start, _ in alignment.words), len(alignment.pdf_ids)]
    ends = [0, *(start + frames for _, start, frames in alignment.words)]
    names, phone_starts = [name for name, _, _ in alignment.phones], [start for _, start, _ in alignment.phones]
    phones = [
        tuple(names[bisect_left(phone_starts, start) : bisect_left(phone_starts, end)])
        for start, end in zip(starts, ends[1:], strict=False)
    ]
    variants = [START, *zip(words, phones, strict=True), END]
    silences = [end < start for end, start in zip(ends, starts, strict=True)]
    return [Spoken(*spoken) for spoken in zip(variants, variants[1:], silences, strict=False)]


def read_inputs(data: DataDir, feats: Path) -> FeatureSet:
    """The normalised MFCC of a set.

    :raises RecipeError: where more than 5 % of the utterances have none.
    """
    features = FeatureSet(feats, "mfcc", data.utt2side)
    check_share(len(features.missing), len(data.utterances), features.missing, "have no features")
    return features


def check_share(failed: int, total: int, names: Sequence[str], what: str) -> None:
    """Warn of utterances that failed.

    :raises RecipeError: where they are more than 5 % of all.
    """
    if not failed:
        return
    message = f"{failed} of {total} utterances {what}: {', '.join(list(names)[:5])}{' ...' if failed > 5 else ''}"
    if failed > MAX_FAILED * total:
        raise RecipeError(f"{message}; more than 5 % is too many: do transcripts and audio belong together?")
    print(f"warning: {message}", file=sys.stderr)


def gmm_input(features: np.ndarray, projection: Tensor | None) -> Tensor:
    """Normalised MFCC ``(frames, 13)`` as a model's input: with deltas ``(frames, 39)``, or spliced and projected."""
    if projection is None:
        return torch.from_numpy(add_deltas(features))
    return splice(torch.from_numpy(features), projection.shape[1] // features.shape[1] // 2) @ projection.float().T


def splice(frames: Tensor, context: int) -> Tensor:
    """Each frame between its ``context`` neighbours on either side, ``(T, D)`` to ``(T, (2 context + 1) D)``; ends repeat."""
    places = torch.arange(len(frames))[:, None] + torch.arange(-context, context + 1)
    return frames[places.clamp(0, len(frames) - 1)].flatten(1)


def align_job(model: HmmModel, labels: HmmModel, lang: Lang, data: DataDir, features: FeatureSet, out: Path) -> None:
    """Align ``data`` and write ``ali.scp`` (pdf-ids), ``phones.ctm``, ``words.ctm`` and ``stats.json`` to ``out``.

    With a speaker-adapted model, ``fmllr.scp`` too: each speaker's transform, estimated on a first, unadapted alignment.

    :param labels: the model whose pdf-ids are written; its tree may be another than that of ``model``.
    """
    ids = [key for key in data.utterances if key in features]
    lengths = {key: data.utterances[key].duration for key in ids}
    transforms: dict[str, Tensor] = {}

    def run_pass(gmm: Gmm, name: str) -> dict[str, Alignment | None]:
        aligner = Aligner(model, lang, gmm)

        def batch() -> Iterator[tuple[str, Tensor, Graph]]:
            for key in tqdm(sorted(ids, key=lambda key: lengths[key]), desc=name, mininterval=2):
                x = gmm_input(features[key], model.projection)
                speaker = data.utterances[key].speaker
                x = apply(transforms[speaker], x) if transforms else x
                yield key, x, aligner.compile(data.utterances[key].words)

        return dict(aligner.align_features(batch()))

    if model.unadapted is not None:
        first = run_pass(model.unadapted, "first pass")
        for speaker, keys in data.speakers.items():
            aligned = {key: found for key in keys if (found := first.get(key)) is not None}
            x = [gmm_input(features[key], model.projection) for key in aligned]
            pdfs = [torch.from_numpy(found.pdf_ids).long() for found in aligned.values()]
            transforms[speaker] = speaker_transform(model, x, pdfs)
        write_archive(out / "fmllr.scp", ((speaker, w.float().numpy()) for speaker, w in transforms.items()))
    aligned_or_not = run_pass(model.gmm, "align")
    done = {key: alignment for key, alignment in aligned_or_not.items() if alignment is not None}
    failed = sorted(set(aligned_or_not) - set(done))
    phones, words = [], []
    for key in sorted(done):
        utterance = data.utterances[key]
        recording = data.recordings[utterance.recording]
        head = f"{recording.file} {recording.side}"
        for rows, items in (
            (phones, done[key].phones),
            (words, [(utterance.words[place], start, n) for place, start, n in done[key].words]),
        ):
            for label, start, n in items:
                rows.append(f"{head} {utterance.start + start * FRAME_SHIFT:.2f} {n * FRAME_SHIFT:.2f} {label}\n")
    frames = sum(len(alignment.pdf_ids) for alignment in done.values())
    stats = {
        "num_pdfs": labels.num_pdfs,
        "utterances": len(done),
        "failed": failed,
        "frames": frames,
        "log_likelihood": sum(alignment.log_likelihood for alignment in done.values()),
    }
    write_archive(out / "ali.scp", ((key, done[key].pdf_ids_of(labels)) for key in sorted(done)))
    write_text(out / "phones.ctm", "".join(phones))
    write_text(out / "words.ctm", "".join(words))
    write_text(out / "stats.json", json.dumps(stats) + "\n")


def join(parts: Sequence[Path], data: DataDir, out: Path) -> None:
    """Join the jobs' alignments into ``out``.

    :raises RecipeError: where more than 5 % of the set's utterances have none: a job's share of them may be too small to tell.
    """
    aligned = {line.split(maxsplit=1)[0] for part in parts for line in (part / "ali.scp").read_text().splitlines()}
    lost = sorted(set(data.utterances) - aligned)
    check_share(len(lost), len(data.utterances), lost, "have no alignment: too short for their words")
    for name in ("phones.ctm", "words.ctm"):
        with atomic_path(out / name) as temporary, open(temporary, "wb") as whole_file:
            for part in parts:
                with open(part / name, "rb") as file:
                    shutil.copyfileobj(file, whole_file)
    stats = [json.loads((part / "stats.json").read_text(encoding="utf-8")) for part in parts]
    whole = {key: sum(part[key] for part in stats) for key in ("utterances", "frames", "log_likelihood")}
    whole["num_pdfs"] = stats[0]["num_pdfs"]
    whole["failed"] = [key for part in stats for key in part["failed"]]
    write_text(out / "stats.json", json.dumps(whole) + "\n")
    for name in ("ali.scp", "fmllr.scp"):
        join_archives([part / name for part in parts], out / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--labels", type=Path, help="the model whose pdf-ids are written; else --model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--feats", type=Path)
    parser.add_argument("--lang", type=Path)
    parser.add_argument("--job", type=int, help="from 0")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--join", type=Path, nargs="+", metavar="PART")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the operations are small; jobs run side by side instead
    data = DataDir.read(arguments.data)
    if arguments.join:
        join(arguments.join, data, arguments.out)
        return
    needed = (arguments.model, arguments.feats, arguments.lang, arguments.job, arguments.jobs)
    if any(value is None for value in needed):
        raise RecipeError("--model, --feats, --lang, --job and --jobs are needed to align")
    model, lang = HmmModel.load(arguments.model), Lang.read(arguments.lang)
    labels = HmmModel.load(arguments.labels) if arguments.labels else model
    share = data.split(arguments.jobs)[arguments.job]
    align_job(model, labels, lang, share, FeatureSet(arguments.feats, "mfcc", share.utt2side), arguments.out)


if __name__ == "__main__":
    run(main)
