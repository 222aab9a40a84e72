"""The n-gram language model.

    python -m local.lm estimate --train data/train/text --corpora data/swbd1/text --text data/fisher/text --plain more.txt.gz \\
        --heldout data/train_dev/text --lang lang --conf '{"order": 4, "vocabulary": null}' --out lm/arpa.gz
    python -m local.lm grammar --arpa lm/arpa.gz --lang lang --heldout data/train_dev/text --prune 1e-7 --out lm

``estimate`` makes a model of each text and interpolates them with weights that suit the held-out text; it writes
``mixture.json`` beside the model. ``grammar`` takes any ARPA file, gzip or not. It writes G, the pruned model that it is of,
and ``stats.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from local.cli import RecipeError, parse_conf, run
from local.files import write_text
from local.lexicon import Lang
from local.lm.arpa import Arpa
from local.lm.estimate import LmConf, Text, estimate, utterances, vocabulary
from local.lm.grammar import make_grammar
from local.lm.mix import mix, mixture_weights


def make_model(texts: Sequence[Text], heldout: Text, lang: Lang, conf: LmConf) -> tuple[Arpa, list[dict[str, Any]]]:
    """Estimate a model of each text and interpolate them.

    :return: the model; of each text its name and words, the share of them outside the vocabulary, the perplexity of its
        model on the held-out text, its weight.
    :raises RecipeError: for a text without words.
    """
    counts = [Counter(word for sentence in text for word in sentence) for text in texts]
    for text, of_text in zip(texts, counts, strict=True):
        if not of_text:
            raise RecipeError(f"{text.path}: no word to estimate a language model on; leave the text out, or see what it holds")
    known = vocabulary(counts, lang, conf.vocabulary)
    models, figures, by_model = [], [], []
    for text, of_text in zip(texts, counts, strict=True):
        model = estimate(text, known, lang, conf.order)
        unknown = sum(count for word, count in of_text.items() if word not in known)
        perplexity = model.perplexity(heldout, lang.oov)["perplexity"]
        shares = {"words": of_text.total(), "unknown_share": unknown / max(of_text.total(), 1)}
        figures.append({"text": text.name, **shares, "heldout_perplexity": perplexity})
        by_model.append(10 ** model.log10_probs(model.events(heldout, lang.oov)))
        models.append(model)
    weights, _ = mixture_weights(np.stack(by_model, axis=1))
    for of_text, weight in zip(figures, weights.tolist(), strict=True):
        of_text["weight"] = weight
    return mix(models, weights) if len(models) > 1 else models[0], figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    estimating = commands.add_parser("estimate", help="texts to ARPA")
    estimating.add_argument("--train", type=Path, help="Kaldi text: of the texts of corpora, utterances that are here count")
    estimating.add_argument("--corpora", type=Path, nargs="*", default=[], help="Kaldi texts of the training corpora")
    estimating.add_argument("--text", type=Path, nargs="*", default=[], help="Kaldi texts that count as a whole")
    estimating.add_argument("--plain", type=Path, nargs="*", default=[], help="texts without utterance ids, gzip or not")
    estimating.add_argument("--heldout", type=Path, required=True, help="Kaldi text to weigh the texts by")
    estimating.add_argument("--conf", required=True, help="JSON of LmConf")
    formatting = commands.add_parser("grammar", help="ARPA to G.fst")
    formatting.add_argument("--arpa", type=Path, required=True)
    formatting.add_argument("--mixture", type=Path, help="mixture.json of the model, for the statistics")
    formatting.add_argument("--heldout", type=Path, nargs="+", required=True, help="Kaldi texts to measure the model on")
    formatting.add_argument("--prune", type=float, help="G is of the model pruned by this threshold")
    for command in (estimating, formatting):
        command.add_argument("--lang", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "estimate":
        conf, only = parse_conf(LmConf, arguments.conf), utterances(arguments.train) if arguments.corpora else None
        texts = [Text(path, only=only) for path in arguments.corpora]
        texts += [Text(path) for path in arguments.text] + [Text(path, keyed=False) for path in arguments.plain]
        model, figures = make_model(texts, Text(arguments.heldout), Lang.read(arguments.lang), conf)
        model.write(arguments.out)
        write_text(arguments.out.parent / "mixture.json", json.dumps(figures, indent=1) + "\n")
        print(f"language model: {figures}", file=sys.stderr)
    else:
        texts = [Text(path) for path in arguments.heldout]
        stats = make_grammar(arguments.arpa, arguments.lang, texts, arguments.out, arguments.prune)
        stats["mixture"] = json.loads(arguments.mixture.read_text(encoding="utf-8")) if arguments.mixture else []
        write_text(arguments.out / "stats.json", json.dumps(stats, indent=1) + "\n")
        print(f"G: {stats}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
