"""The n-gram language model: estimated on text, measured on held-out text, turned into the acceptor G.

    python -m local.lm estimate --text data/train/text --lang lang --conf '{"order": 3}' --out lm/arpa.gz
    python -m local.lm grammar --arpa lm/arpa.gz --lang lang --heldout data/train_dev/text --out lm

``grammar`` takes any ARPA file, gzip or not.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kaldifst
import kaldilm
from kaldingram.train import NgramCounts

from local.cli import RecipeError, parse_conf, run
from local.files import atomic_path, write_text
from local.lexicon import BACKOFF, BOS, EOS, EPSILON, NO_WORDS, Lang

_MAX_ORDER = 5  # kaldingram's
_MAX_OOV = 0.5  # of the held-out words; beyond it text and lexicon do not belong together

Ngrams = list[dict[tuple[str, ...], tuple[float, float]]]  # by order: words to log10 probability and back-off weight


@dataclass(frozen=True)
class LmConf:
    """How the language model is estimated."""

    order: int  # 2 to 5


@dataclass(frozen=True)
class Arpa:
    """A back-off n-gram model."""

    ngrams: Ngrams

    @staticmethod
    def read(path: str | Path) -> Arpa:
        """Read an ARPA file, gzip or not.

        :raises RecipeError: for a line of another form, counts other than the header's, a missing end.
        """
        with _open(path) as file:
            lines = ((number, line.strip()) for number, line in enumerate(file, 1))
            try:
                return Arpa(_parse(lines, str(path)))
            except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
                raise RecipeError(f"{path}: cannot be read as text ({error})") from None

    def log10_prob(self, history: tuple[str, ...], word: str) -> float:
        """log10 of P(word | history), by back-off; ``-inf`` where the model lacks the word."""
        ngram = (*history, word)[-len(self.ngrams) :]
        cost = 0.0
        while ngram not in self.ngrams[len(ngram) - 1]:
            if len(ngram) == 1:
                return -math.inf
            cost += self.ngrams[len(ngram) - 2].get(ngram[:-1], (0.0, 0.0))[1]
            ngram = ngram[1:]
        return cost + self.ngrams[len(ngram) - 1][ngram][0]

    def perplexity(self, sentences: Iterable[list[str]], oov: str) -> dict[str, float | int]:
        """Measure the model on held-out sentences.

        A word the model lacks counts as ``oov``; where it lacks that too, the word is left out of sum and count.

        :return: sentences, words, unknown words, their share, log10 probability of all, perplexity per word and
            sentence end, as SRILM's ``ngram -ppl -unk`` gives them.
        """
        counts = {"sentences": 0, "words": 0, "unknown_words": 0}
        total, events = 0.0, 0
        for sentence in sentences:
            counts["sentences"] += 1
            counts["words"] += len(sentence)
            counts["unknown_words"] += sum((word,) not in self.ngrams[0] for word in sentence)
            history: tuple[str, ...] = (BOS,)
            for word in [*(word if (word,) in self.ngrams[0] else oov for word in sentence), EOS]:
                log10_prob = self.log10_prob(history, word)
                if log10_prob > -math.inf:
                    total, events = total + log10_prob, events + 1
                history = (*history, word)[-len(self.ngrams) :]
        if not events:
            raise RecipeError("the held-out text has no sentence")
        share = counts["unknown_words"] / max(counts["words"], 1)
        return {**counts, "unknown_share": share, "log10_prob": total, "perplexity": 10 ** (-total / events)}


def _open(path: str | Path) -> Any:
    if not Path(path).exists():
        raise RecipeError(f"{path}: no such ARPA file")
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8") if zipped else open(path, encoding="utf-8")


def _parse(lines: Iterator[tuple[int, str]], path: str) -> Ngrams:
    counts: dict[int, int] = {}
    ngrams: Ngrams = []
    for _, line in lines:
        if line == "\\data\\":
            break
    for number, line in lines:
        where = f"{path}:{number}"
        order = len(ngrams)
        if line == "\\end\\":
            break
        if not line:
            continue
        if line == f"\\{order + 1}-grams:":
            ngrams.append({})
        elif line.startswith("ngram ") and not ngrams:
            try:
                key, count = line.removeprefix("ngram ").split("=")
                counts[int(key)] = int(count)
            except ValueError:
                raise RecipeError(f"{where}: expected 'ngram ORDER=COUNT', found {line!r}") from None
        else:
            fields = line.split()
            words = tuple(fields[1 : order + 1])
            try:
                log10_prob, *backoff = (float(text) for text in (fields[0], *fields[order + 1 :]))
            except ValueError:
                backoff = [math.nan, math.nan]
            if not order or len(words) != order or len(backoff) > 1:
                raise RecipeError(f"{where}: expected log10 probability, {order} words, weight; found {line!r}")
            if words in ngrams[-1]:
                raise RecipeError(f"{where}: the {order}-gram {' '.join(words)!r} stands there twice")
            ngrams[-1][words] = (log10_prob, backoff[0] if backoff else 0.0)
    else:
        raise RecipeError(f"{path}: no ARPA file, or cut off: \\data\\ or \\end\\ is missing")
    found = {order: len(entries) for order, entries in enumerate(ngrams, 1)}
    if not found or counts != found:
        raise RecipeError(f"{path}: the header announces n-grams by order {counts}, found {found}")
    for word in (BOS, EOS):
        if (word,) not in ngrams[0]:
            raise RecipeError(f"{path}: no 1-gram {word}")
    return ngrams


def read_sentences(text: Path) -> Iterator[list[str]]:
    """The words of each line of a Kaldi ``text`` (``<utterance id> <words>``)."""
    if not text.exists():
        raise RecipeError(f"{text}: no such text; run the stage 'data'")
    for line in text.read_text(encoding="utf-8").splitlines():
        yield line.split()[1:]


def silence_words(lang: Lang) -> set[str]:
    """The words spoken with silence phones alone: noises, the unknown word."""
    silence = set(lang.silence_phones)
    return {word for word, entries in lang.lexicon.items() if all(silence.issuperset(entry.phones) for entry in entries)}


def estimate(sentences: Iterable[list[str]], lang: Lang, order: int, out: Path) -> None:
    """Estimate a back-off Kneser-Ney model and write it as a gzipped ARPA file.

    Words without a pronunciation count as the unknown word. Words of the lexicon that the text lacks, silence words
    apart, enter the unigrams as if seen in one context: else they could never be recognised.

    :raises RecipeError: for an order out of range or an empty text.
    """
    if not 2 <= order <= _MAX_ORDER:
        raise RecipeError(f"lm.order: expected 2 to {_MAX_ORDER}, found {order}")
    counts = NgramCounts(order)
    seen = silence_words(lang)
    lines = 0
    for sentence in sentences:
        words = [word if word in lang.lexicon else lang.oov for word in sentence]
        counts.add_raw_counts_from_line(" ".join(words))
        seen.update(words)
        lines += 1
    if not lines:
        raise RecipeError("the language model's text is empty")
    for word in sorted(set(lang.lexicon) - seen):
        counts.add_count((), word, EPSILON, 1)
    counts.cal_discounting_constants()
    counts.cal_f()
    counts.cal_bow()
    with (
        atomic_path(out) as temporary,
        open(temporary, "wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped,  # neither name nor time: same model, same bytes
        io.TextIOWrapper(zipped, encoding="utf-8") as file,
    ):
        counts.print_as_arpa(file)


def acceptor(arpa: Path, lang: Path) -> kaldifst.StdVectorFst:
    """Turn an ARPA file into G: an acceptor of word ids with ``#0`` on back-off arcs; n-grams of other words go."""
    with tempfile.TemporaryDirectory() as folder, _open(arpa) as file:
        plain, fst = Path(folder) / "arpa", Path(folder) / "G.fst"
        with open(plain, "w", encoding="utf-8") as copy:
            copy.writelines(file)
        kaldilm.arpa2fst(
            str(plain),
            str(fst),
            disambig_symbol=BACKOFF,
            read_symbol_table=str(lang / "words.txt"),
            max_arpa_warnings=0,
        )
        return kaldifst.StdVectorFst.read(str(fst))


def make_grammar(arpa: Path, lang_dir: Path, heldout: Path, out: Path) -> None:
    """Write ``G.fst`` and ``stats.json``, its sizes and the model's perplexity on held-out text, to the folder ``out``.

    :raises RecipeError: where lexicon and model have no word in common, or hardly a word of the text is in the model.
    """
    lang, model = Lang.read(lang_dir), Arpa.read(arpa)
    known = set(lang.lexicon)
    vocabulary = {word for (word,) in model.ngrams[0]} - NO_WORDS
    if not vocabulary & known:
        raise RecipeError(f"{arpa}: none of its {len(vocabulary)} words is in the lexicon of {lang_dir}")
    dropped = sum(not known.issuperset(set(ngram) - NO_WORDS) for entries in model.ngrams for ngram in entries)
    stats = {
        "ngrams": [len(entries) for entries in model.ngrams],
        "dropped_ngrams": dropped,
        "dropped_words": len(vocabulary - known),
        "heldout": model.perplexity(read_sentences(heldout), lang.oov),
    }
    if dropped:
        print(f"warning: {arpa}: {dropped} n-grams have words that are not in the lexicon; dropped", file=sys.stderr)
    if stats["heldout"]["unknown_share"] > _MAX_OOV:
        raise RecipeError(f"{heldout}: {stats['heldout']['unknown_share']:.0%} of its words are not in {arpa}")
    fst = acceptor(arpa, lang_dir)
    stats["states"] = fst.num_states
    with atomic_path(out / "G.fst") as temporary:
        fst.write(str(temporary))
    write_text(out / "stats.json", json.dumps(stats, indent=1) + "\n")
    print(f"G: {stats}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    estimating = commands.add_parser("estimate", help="text to ARPA")
    estimating.add_argument("--text", type=Path, nargs="+", required=True)
    estimating.add_argument("--conf", required=True, help="JSON of LmConf")
    formatting = commands.add_parser("grammar", help="ARPA to G.fst")
    formatting.add_argument("--arpa", type=Path, required=True)
    formatting.add_argument("--heldout", type=Path, required=True, help="Kaldi text for the perplexity")
    for command in (estimating, formatting):
        command.add_argument("--lang", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "estimate":
        conf = parse_conf(LmConf, arguments.conf)
        sentences = (sentence for text in arguments.text for sentence in read_sentences(text))
        estimate(sentences, Lang.read(arguments.lang), conf.order, arguments.out)
    else:
        make_grammar(arguments.arpa, arguments.lang, arguments.heldout, arguments.out)


if __name__ == "__main__":
    run(main)
