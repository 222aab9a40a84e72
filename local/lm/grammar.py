"""The acceptor G of a model, and what the model is worth."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kaldifst
import kaldilm
import numpy as np

from local.cli import RecipeError
from local.files import atomic_path
from local.lexicon import BACKOFF, NO_WORDS, Lang
from local.lm.arpa import Arpa, open_binary
from local.lm.estimate import Text
from local.lm.prune import prune

_MAX_OOV = 0.5  # of the held-out words; beyond it text and lexicon do not belong together


def acceptor(arpa: Path, lang: Path) -> kaldifst.StdVectorFst:
    """Turn an ARPA file into G: an acceptor of word ids with ``#0`` on back-off arcs; n-grams of other words go."""
    with tempfile.TemporaryDirectory() as folder, open_binary(arpa) as file:
        plain, fst = Path(folder) / "arpa", Path(folder) / "G.fst"
        with open(plain, "wb") as copy:
            shutil.copyfileobj(file, copy)
        kaldilm.arpa2fst(
            str(plain),
            str(fst),
            disambig_symbol=BACKOFF,
            read_symbol_table=str(lang / "words.txt"),
            max_arpa_warnings=0,
        )
        return kaldifst.StdVectorFst.read(str(fst))


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
        arpa = out / "pruned.arpa.gz"
        model.write(arpa)
    del model  # room for kaldilm
    fst = acceptor(arpa, lang_dir)
    with atomic_path(out / "G.fst") as temporary:
        fst.write(str(temporary))
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
