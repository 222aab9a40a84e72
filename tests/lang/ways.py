"""All ways to speak a word sequence, enumerated without any graph: what L and the alignment's graphs must cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from local.lexicon import Lang, Pronunciation


def ways(words: Sequence[str], lang: Lang) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Probability and phones of every choice of pronunciations and silences."""
    for variants in itertools.product(*map(lang.pronunciations, words)):
        for silences in itertools.product((False, True), repeat=len(words) + 1):
            phones = [lang.optional_silence] * silences[0]
            for variant, silent in zip(variants, silences[1:], strict=True):
                phones += [*variant.phones, *[lang.optional_silence] * silent]
            yield probability(lang, variants, silences), tuple(phones)


def probability(lang: Lang, variants: Sequence[Pronunciation], silences: Sequence[bool]) -> float:
    """Of pronunciations and of silence or none at the places around them: P and F of each, as Chen et al. multiply them."""
    product = lang.silence.before_end if silences[-1] else lang.silence.none_before_end
    for after, silent in zip([lang.silence.start, *(v.silence_after for v in variants)], silences, strict=True):
        product *= after if silent else 1 - after
    for variant, silent in zip(variants, silences, strict=False):
        product *= variant.probability * (variant.silence_before if silent else variant.no_silence_before)
    return product
