"""The acceptor G of a model, and what the model is worth."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kaldifst
import numpy as np

from local.cli import RecipeError
from local.files import atomic_path
from local.fst import FstArrays
from local.lexicon import BACKOFF, BOS, EOS, NO_WORDS, Lang
from local.lm.arpa import Arpa
from local.lm.estimate import Text
from local.lm.prune import prune

_MAX_OOV = 0.5  # of the held-out words; beyond it text and lexicon do not belong together


def acceptor(arpa: Path, lang: Path) -> kaldifst.StdVectorFst:
    """G of an ARPA file and a language directory, as :func:`to_acceptor` makes it."""
    return to_acceptor(Arpa.read(arpa), Lang.read(lang).words).to_fst()


def to_acceptor(model: Arpa, words: Mapping[str, int]) -> FstArrays:
    """Turn a model into G: an acceptor of word ids with ``#0`` on back-off arcs, which have no output.

    A state is a history after which the model has words; an arc goes to the longest that its end has, and so does a state's
    back-off arc. From the start on, words after ``<s>``; the sentence's end is the cost of ending there. N-grams of other
    words than ``words`` go.
    """
    labels = np.array([0 if word in NO_WORDS else words.get(word, 0) for word in model.words])
    bos, eos = model.ids[BOS], model.ids[EOS]
    suffixes = model.suffixes()
    kept, histories = [labels > 0], [labels > 0]  # by order: n-grams in G, those that may be histories
    kept[0][eos] = histories[0][bos] = True
    for section in model.sections[1:]:
        prefixes, last = np.divmod(section.keys, len(labels))
        kept.append(histories[-1][prefixes] & kept[0][last])
        histories.append(kept[-1] & (last != eos))
    continued = [np.zeros(len(section.keys), bool) for section in model.sections]  # n-grams that are states
    continued[0][bos] = True  # the start, whether or not n-grams begin with it
    for of_order, section, in_g in zip(continued, model.sections[1:], kept[1:], strict=False):
        of_order[section.keys[in_g] // len(labels)] = True
    count = 1  # of states; the first is that of no history
    states, targets, passed = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1)
    ends, arcs = [], []
    for section, links, in_g, is_state in zip(model.sections, suffixes, kept, continued, strict=True):
        prefixes, last = np.divmod(section.keys, len(labels))
        sources, shorter = states[prefixes], targets[links]
        states = count - 1 + np.cumsum(is_state)
        count += int(is_state.sum())
        back = passed[links] - section.backoffs  # log10 cost of going on to the longest shorter history that is a state
        targets, passed = np.where(is_state, states, shorter), np.where(is_state, 0, back)
        word, end = in_g & (last != eos), in_g & (last == eos)
        spoken = labels[last[word]]
        arcs.append((sources[word], spoken, spoken, (passed - section.log10_probs)[word], targets[word]))
        backing = np.full(int(is_state.sum()), words[BACKOFF])
        arcs.append((states[is_state], backing, np.zeros_like(backing), back[is_state], shorter[is_state]))
        ends.append((sources[end], -section.log10_probs[end]))
    final = np.full(count, np.inf)
    for at, costs in ends:
        final[at] = costs * math.log(10)
    source, ilabel, olabel, cost, nextstate = (np.concatenate(columns) for columns in zip(*arcs, strict=True))
    by_label = np.argsort(ilabel, kind="stable")
    columns = (values[by_label] for values in (source, ilabel, olabel, cost * math.log(10), nextstate))
    return FstArrays.of_arcs(int(np.count_nonzero(continued[0][: bos + 1])), final, *columns)


def make_grammar(
    arpa: Path, lang_dir: Path, texts: Sequence[Text], out: Path, threshold: float | None = None
) -> dict[str, Any]:
    """Write ``G.fst`` and, where there is a threshold, the model that it is of to the folder ``out``: ``pruned.arpa.gz``.

    :param texts: texts to measure the models on.
    :param threshold: of :func:`local.lm.prune.prune`; ``None``: G is of the full model.
    :return: of the full model and of the first pass's: n-grams by order, n-grams and words that the lexicon lacks and G
        therefore too, figures of each text; the states of G.
    :raises RecipeError: where lexicon and model have no word in common, or hardly a word of a text is in the model.
    """
    lang, model = Lang.read(lang_dir), Arpa.read(arpa)
    if not (set(model.words) - NO_WORDS) & set(lang.lexicon):
        raise RecipeError(f"{arpa}: none of its {len(model.words)} words is in the lexicon of {lang_dir}")
    full = _figures(model, lang, texts)
    for name, measured in full["texts"].items():
        if measured["unknown_share"] > _MAX_OOV:
            raise RecipeError(f"{name}: {measured['unknown_share']:.0%} of its words are not in {arpa}")
    if full["dropped_ngrams"]:
        print(
            f"warning: {arpa}: {full['dropped_ngrams']} n-grams have words that are not in the lexicon; dropped",
            file=sys.stderr,
        )
    first = full
    if threshold is not None:
        model = prune(model, threshold)
        first = _figures(model, lang, texts)
        model.write(out / "pruned.arpa.gz")
    fst = to_acceptor(model, lang.words)
    with atomic_path(out / "G.fst") as temporary:
        fst.to_fst().write(str(temporary))
    return {"full": full, "first_pass": first, "states": fst.num_states}


def _figures(model: Arpa, lang: Lang, texts: Sequence[Text]) -> dict[str, Any]:
    known = np.array([word in lang.lexicon or word in NO_WORDS for word in model.words])
    dropped = ~known
    total = int(dropped.sum())
    for section in model.sections[1:]:
        prefixes, last = np.divmod(section.keys, len(model.words))
        dropped = dropped[prefixes] | ~known[last]
        total += int(dropped.sum())
    return {
        "ngrams": [len(section.keys) for section in model.sections],
        "dropped_ngrams": total,
        "dropped_words": int((~known).sum()),
        "texts": {text.name: model.perplexity(text, lang.oov) for text in texts},
    }
