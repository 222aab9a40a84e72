"""Entropy pruning: the n-grams go whose absence hardly changes the model (Stolcke 1998, "Entropy-based pruning of backoff
language models")."""

from __future__ import annotations

import numpy as np

from local.lexicon import BOS, EOS
from local.lm.arpa import Arpa, leftovers


def prune(model: Arpa, threshold: float) -> Arpa:
    """Remove every n-gram but 1-grams that raises the model's own perplexity by less than ``threshold``, relatively.

    That is exp(D) - 1, D the relative entropy between the model with the n-gram hw and without (Stolcke's equations 3 to 6):

        D = -P(h) {P(w|h) [ln P(w|h') + ln b - ln P(w|h)] + (1 - sum of P(v|h)) [ln b - ln a]}

    where h' is h without its first word, a the back-off weight after h and b what it would be without hw. N-grams are judged
    one by one and the weights then computed anew, as in SRILM. P(h) is the product of its words' probabilities; the
    sentence's start has that of its end. An n-gram stays while a longer one begins or ends with it, so from the longest down.
    """
    size = len(model.words)
    sections, suffixes = model.sections, model.suffixes()
    histories = _log_probs_of_histories(model)
    kept: list[np.ndarray] = [np.ones(len(section.keys), bool) for section in sections]
    needed = np.zeros(len(sections[-1].keys), bool)
    for n in range(model.order - 1, 0, -1):
        section, below, links = sections[n], sections[n - 1], suffixes[n]
        prefixes = section.keys // size
        log_p, log_q = (values.astype(np.float64) * np.log(10) for values in (section.log10_probs, below.log10_probs[links]))
        rest, lower_rest = (values[prefixes] for values in leftovers(section, below, links, size))
        p = np.exp(log_p)
        log_b = np.log((rest + p) / (lower_rest + np.exp(log_q)))
        log_a = np.log(rest / lower_rest)
        entropy = -np.exp(histories[n - 1][prefixes]) * (p * (log_q + log_b - log_p) + rest * (log_b - log_a))
        kept[n] = needed | ~(np.expm1(entropy) < threshold)
        needed = np.zeros(len(below.keys), bool)
        needed[prefixes[kept[n]]] = needed[links[kept[n]]] = True
    keys = [sections[0].keys]
    for section, before, stays in zip(sections[1:], kept, kept[1:], strict=False):
        prefixes, last = np.divmod(section.keys[stays], size)
        keys.append((np.cumsum(before) - 1)[prefixes] * size + last)
    log10_probs = [section.log10_probs[stays] for section, stays in zip(sections, kept, strict=True)]
    return Arpa.normalised(model.words, keys, log10_probs)


def _log_probs_of_histories(model: Arpa) -> list[np.ndarray]:
    """By order but the last, ln P of n-grams as histories, float64."""
    own = [section.log10_probs.astype(np.float64) * np.log(10) for section in model.sections[:-1]]
    if own:
        own[0][model.ids[BOS]] = own[0][model.ids[EOS]]
    for n in range(1, len(own)):
        own[n] += own[n - 1][model.sections[n].keys // len(model.words)]
    return own
