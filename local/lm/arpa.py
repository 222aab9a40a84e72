"""A back-off n-gram model as arrays: read from ARPA files and written to them, asked word by word or all at once.

The n-grams of an order lie in one ascending array of keys: the place of the first n - 1 words among those of the order
below, times the size of the vocabulary, plus the last word. So a model is a trie, 16 bytes an n-gram, and whatever is done
to all n-grams of an order is a few passes of numpy.
"""

from __future__ import annotations

import gzip
import io
import itertools
import math
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

import numpy as np

from local.arrays import distinct
from local.cli import RecipeError
from local.files import atomic_path
from local.lexicon import BOS, EOS

MAX_ORDER = 4
LOG_ZERO = -99.0  # what ARPA files have for log10 of 0
_CHUNK = 1 << 16  # lines at once
_CONTEXTS = 1 << 16  # histories remembered
_ROUNDING = 1e-3  # a log10 probability may lie so far above 0


class Section(NamedTuple):
    """The n-grams of one order."""

    keys: np.ndarray  # [n-grams] int64, ascending; of 1-grams the word ids, without a gap
    log10_probs: np.ndarray  # [n-grams] float32
    backoffs: np.ndarray  # [n-grams] float32: log10 of the weight of words not seen after this n-gram; 0 where none was


class Ngrams(NamedTuple):
    """The n-grams of one order in any order, as :meth:`Arpa.build` takes them."""

    prefixes: np.ndarray  # [n-grams] int64: ids of all words but the last, as digits to the base of the vocabulary's size
    last: np.ndarray  # [n-grams] int64: ids of the last words
    log10_probs: np.ndarray  # [n-grams]
    backoffs: np.ndarray  # [n-grams]


@dataclass(frozen=True, eq=False)
class Arpa:
    """A back-off n-gram model. With an n-gram it has those that the n-gram begins and ends with."""

    words: list[str]  # ascending; a word's place is its id
    sections: list[Section]  # by order

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.sections)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The words' ids."""
        return {word: number for number, word in enumerate(self.words)}

    def __contains__(self, word: str) -> bool:
        return word in self.ids

    @staticmethod
    def read(path: str | Path) -> Arpa:
        """Read an ARPA file, gzip or not, of at most 4-grams.

        N-grams that others begin or end with and that the file lacks, as SRILM's may, are put in with the probability
        that back-off gives them and no weight of their own, which changes no probability.

        :raises RecipeError: for a line of another form, counts other than the header's, an n-gram given twice, a word
            without 1-gram, a missing end.
        """
        if not Path(path).exists():
            raise RecipeError(f"{path}: no such ARPA file")
        with open_binary(path) as file:
            try:
                return _Reader(file, str(path)).model()
            except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise RecipeError(f"{path}: cannot be read as text ({error})") from None

    @staticmethod
    def build(words: list[str], orders: Sequence[Ngrams], where: str) -> Arpa:
        """Sort n-grams, and put in those that others begin or end with where they lack.

        :param words: ascending; their 1-grams are ``orders[0]``, in the same order.
        :param where: what to call the model in an error.
        :raises RecipeError: for an n-gram given twice, too many words.
        """
        size = len(words)
        if size ** (len(orders) - 1) >= 1 << 63:
            raise RecipeError(f"{where}: {size} words are too many for {len(orders)}-grams")
        closed = list(orders)
        for place in range(len(closed) - 2, 0, -1):  # the longest need no others
            longer, own = closed[place + 1], closed[place]
            endings = longer.prefixes % size**place * size + longer.last
            needed = distinct(np.concatenate([longer.prefixes, endings]))
            packed = needed[~np.isin(needed, own.prefixes * size + own.last, assume_unique=True, kind="sort")]
            lacking = Ngrams(*np.divmod(packed, size), np.full(len(packed), np.nan), np.zeros(len(packed)))
            closed[place] = Ngrams(*(np.concatenate(pair) for pair in zip(own, lacking, strict=True)))
        first = closed[0]
        sections = [Section(np.arange(size), first.log10_probs.astype(np.float32), first.backoffs.astype(np.float32))]
        packed, links = np.arange(size), np.zeros(size, np.int64)
        for length, ngrams in enumerate(closed[1:], 2):
            below = sections[-1]
            keys = np.searchsorted(packed, ngrams.prefixes) * size + ngrams.last
            by_key = np.argsort(keys, kind="stable")
            keys = keys[by_key]
            prefixes = keys // size
            links = np.searchsorted(below.keys, links[prefixes] * size + keys % size)
            log10_probs = ngrams.log10_probs[by_key].astype(np.float32)
            backed_off = below.backoffs[prefixes] + below.log10_probs[links]
            log10_probs = np.where(np.isnan(log10_probs), backed_off, log10_probs)
            sections.append(Section(keys, log10_probs, ngrams.backoffs[by_key].astype(np.float32)))
            if len(twice := np.flatnonzero(keys[1:] == keys[:-1])):
                text = next(Arpa(words, sections).texts(length, twice[:1]))
                raise RecipeError(f"{where}: the {length}-gram {text!r} stands there twice")
            if length < len(closed):
                packed = (ngrams.prefixes * size + ngrams.last)[by_key]
        return Arpa(words, sections)

    @staticmethod
    def normalised(words: list[str], keys: Sequence[np.ndarray], log10_probs: Sequence[np.ndarray]) -> Arpa:
        """A model whose back-off weights make the probabilities after every history sum to one.

        The weight after the history h is (1 - sum of P(w|h)) / (1 - sum of P(w|h')) over the words w seen after h, where h'
        is h without its first word. Orders without n-grams at the end go.
        """
        orders = max(n for n, of_order in enumerate(keys, 1) if len(of_order))
        rounded = [values.astype(np.float32) for values in log10_probs[:orders]]
        zeros = [np.zeros(len(values), np.float32) for values in rounded]
        sections = [Section(*arrays) for arrays in zip(keys, rounded, zeros, strict=False)]
        model = Arpa(words, sections)
        for below, section, links in zip(sections, sections[1:], model.suffixes()[1:], strict=False):
            rest, lower_rest = leftovers(section, below, links, len(words))
            seen = distinct(section.keys // len(words))
            below.backoffs[seen] = np.log10(rest[seen] / lower_rest[seen]).clip(LOG_ZERO)
        return model

    def suffixes(self) -> list[np.ndarray]:
        """By order, the place of every n-gram without its first word among those of the order below; int32."""
        size = len(self.words)
        links = [np.zeros(size, np.int32)]
        for below, section in itertools.pairwise(self.sections):
            prefixes, last = np.divmod(section.keys, size)
            links.append(np.searchsorted(below.keys, links[-1][prefixes] * size + last).astype(np.int32))
        return links

    def texts(self, order: int, places: np.ndarray) -> Iterable[str]:
        """The words of n-grams, by their places among those of the order."""
        columns = []
        for section in reversed(self.sections[1:order]):
            places, last = np.divmod(section.keys[places], len(self.words))
            columns.append(last.tolist())
        columns.append(places.tolist())
        return map(" ".join, zip(*([self.words[number] for number in column] for column in reversed(columns)), strict=True))

    def write(self, path: str | Path) -> None:
        """Write a gzipped ARPA file; the same model makes the same bytes."""
        with (
            atomic_path(path) as temporary,
            open(temporary, "wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, 0) as zipped,  # neither name nor time
            io.TextIOWrapper(zipped, encoding="utf-8") as file,
        ):
            file.write("\\data\\\n")
            file.writelines(f"ngram {order}={len(section.keys)}\n" for order, section in enumerate(self.sections, 1))
            for order, section in enumerate(self.sections, 1):
                file.write(f"\n\\{order}-grams:\n")
                for first in range(0, len(section.keys), _CHUNK):
                    places = np.arange(first, min(first + _CHUNK, len(section.keys)))
                    log10_probs, weights = section.log10_probs[places].tolist(), section.backoffs[places].tolist()
                    file.writelines(
                        f"{log10_prob:.7f}\t{text}\t{weight:.7f}\n" if weight else f"{log10_prob:.7f}\t{text}\n"
                        for log10_prob, text, weight in zip(log10_probs, self.texts(order, places), weights, strict=True)
                    )
            file.write("\n\\end\\\n")

    def log10_prob(self, history: tuple[str, ...], word: str) -> float:
        """log10 of P(word | history), by back-off; ``-inf`` where the model lacks the word."""
        if (number := self.ids.get(word)) is None:
            return -math.inf
        history = history[max(0, len(history) + 1 - self.order) :]
        contexts = self._contexts.get(history)
        if contexts is None:
            if len(self._contexts) >= _CONTEXTS:
                self._contexts.clear()
            contexts = self._contexts[history] = self._backing_off(history)
        for order, first, weight in contexts:
            if (place := self._place(order, first + number)) >= 0:
                return weight + self._views[order][1][place]
        raise AssertionError

    @cached_property
    def _contexts(self) -> dict[tuple[str, ...], list[tuple[int, int, float]]]:
        return {}

    @cached_property
    def _views(self) -> list[tuple[memoryview, memoryview]]:  # whose items are Python's numbers
        return [(memoryview(section.keys), memoryview(section.log10_probs)) for section in self.sections]

    def _place(self, order: int, key: int) -> int:
        keys = self._views[order][0]
        place = bisect_left(keys, key)
        return place if place < len(keys) and keys[place] == key else -1

    def _backing_off(self, history: tuple[str, ...]) -> list[tuple[int, int, float]]:
        """Where words after a history are found: section, key of the first word, weight so far; longest context first."""
        numbers = [self.ids.get(word, -1) for word in history]
        contexts, weight = [], 0.0
        for first in range(len(numbers)):
            place = numbers[first]
            for order, number in enumerate(numbers[first + 1 :], 1):
                place = self._place(order, place * len(self.words) + number) if place >= 0 <= number else -1
            if place >= 0:
                length = len(numbers) - first
                contexts.append((length, place * len(self.words), weight))
                weight += float(self.sections[length - 1].backoffs[place])
        return [*contexts, (0, 0, weight)]

    def _find(self, ngrams: np.ndarray) -> np.ndarray:
        """The places of n-grams ``[number, order]`` among those of their order; -1 where the model lacks them."""
        places = ngrams[:, 0]
        for section, last in zip(self.sections[1:], ngrams.T[1:], strict=False):
            wanted = places * len(self.words) + last
            found = np.searchsorted(section.keys, wanted)
            found[(places < 0) | (last < 0)] = -1
            places = np.where((found < len(section.keys)) & (_at(section.keys, found) == wanted), found, -1)
        return places

    def log10_probs(self, ngrams: np.ndarray) -> np.ndarray:
        """log10 of the probability of each last word, by back-off: ``[number]`` float64.

        :param ngrams: word ids ``[number, order]`` int64; -1 for none: a word that the model lacks, or before the start.
            A last word that the model lacks gets ``-inf``.
        """
        order = ngrams.shape[1]
        total = np.zeros(len(ngrams))
        rest = np.arange(len(ngrams))
        for first, section in enumerate(reversed(self.sections[:order])):
            places = self._find(ngrams[rest, first:])
            total[rest] += _at(section.log10_probs, places)
            rest = rest[places < 0]
            if first < order - 1:
                contexts = self._find(ngrams[rest, first:-1])
                total[rest] += _at(self.sections[order - first - 2].backoffs, contexts)
        total[rest] = -np.inf
        return total

    def events(self, sentences: Iterable[list[str]], oov: str) -> np.ndarray:
        """Every word and end of sentences after its history: ids ``[number, order]``, as :meth:`log10_probs` takes them.

        :param oov: what a word counts as that the model lacks.
        """
        unknown = self.ids.get(oov, -1)
        before = [-1] * (self.order - 2) + [self.ids[BOS]]
        numbers: list[int] = []
        is_event: list[bool] = []
        for sentence in sentences:
            numbers += before[-self.order + 1 :] if self.order > 1 else []
            numbers += [self.ids.get(word, unknown) for word in sentence]
            numbers.append(self.ids[EOS])
            is_event += [False] * (self.order - 1) + [True] * (len(sentence) + 1)
        if not numbers:
            raise RecipeError("the held-out text has no sentence")
        windows = np.lib.stride_tricks.sliding_window_view(np.array(numbers, np.int64), self.order)
        return windows[np.array(is_event)[self.order - 1 :]]

    def perplexity(self, sentences: Iterable[list[str]], oov: str) -> dict[str, float | int]:
        """Measure the model on held-out sentences.

        A word the model lacks counts as ``oov``; where it lacks that too, the word is left out of sum and count.

        :return: sentences, words, unknown words, their share, log10 probability of all, perplexity per word and
            sentence end, as SRILM's ``ngram -ppl -unk`` gives them.
        """
        sentences = list(sentences)
        log10_probs = self.log10_probs(self.events(sentences, oov))
        known = log10_probs[log10_probs > -np.inf]
        words = sum(map(len, sentences))
        unknown = sum(word not in self for sentence in sentences for word in sentence)
        return {
            "sentences": len(sentences),
            "words": words,
            "unknown_words": unknown,
            "unknown_share": unknown / max(words, 1),
            "log10_prob": float(known.sum()),
            "perplexity": float(10 ** -known.mean()),
        }


def _at(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The values at these places; 0 where there is no such place."""
    found = np.zeros(len(places), values.dtype)
    there = (places >= 0) & (places < len(values))
    found[there] = values[places[there]]
    return found


def leftovers(section: Section, below: Section, links: np.ndarray, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """What the words seen after each history leave to others, by the history and by the one without its first word.

    :param section: the n-grams, ``below``: those of the order below, the histories.
    :param links: the places of the n-grams without their first word.
    :return: 1 - sum of P(w|h) and 1 - sum of P(w|h'), float64 ``[histories]``, at least 1e-12: rounding may take the sums
        beyond one.
    """
    prefixes = section.keys // vocabulary
    sums = (
        np.bincount(prefixes, 10.0 ** values.astype(np.float64), len(below.keys))
        for values in (section.log10_probs, below.log10_probs[links])
    )
    rest, lower_rest = (np.maximum(1 - total, 1e-12) for total in sums)
    return rest, lower_rest


def open_binary(path: str | Path) -> BinaryIO:
    """Open a file for reading, decompressed where it is gzip."""
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else open(path, "rb")  # type: ignore[return-value]


class _Reader:
    """An ARPA file on the way through."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.file, self.path, self.number = file, path, 0

    def fail(self, message: str) -> NoReturn:
        raise RecipeError(f"{self.path}:{self.number}: {message}")

    def line(self) -> str:
        """The next line that is not blank, without blanks around it."""
        for line in self.file:
            self.number += 1
            if line := line.strip():
                return line.decode()
        raise RecipeError(f"{self.path}: no ARPA file, or cut off: \\data\\ or \\end\\ is missing")

    def model(self) -> Arpa:
        while self.line() != "\\data\\":
            pass
        counts: list[int] = []
        while (line := self.line()).startswith("ngram "):
            try:
                order, count = map(int, line.removeprefix("ngram ").split("="))
            except ValueError:
                self.fail(f"expected 'ngram ORDER=COUNT', found {line!r}")
            if order != len(counts) + 1 or order > MAX_ORDER:
                self.fail(f"expected the counts of orders 1, 2, ..., at most {MAX_ORDER}, found {line!r}")
            counts.append(count)
        words: list[str] = []
        ids: dict[bytes, int] = defaultdict(lambda: len(ids))  # 1-grams number themselves
        orders: list[Ngrams] = []
        for order, count in enumerate(counts, 1):
            self.expect(f"\\{order}-grams:", line, counts[: order - 1])
            orders.append(self.section(order, count, ids))
            if order == 1:
                words = [word.decode() for word in ids]
                if len(twice := np.flatnonzero(np.diff(orders[0].last) != 1)):
                    word = words[orders[0].last[twice[0] + 1]]
                    raise RecipeError(f"{self.path}: the 1-gram {word!r} stands there twice")
                by_word = sorted(range(len(words)), key=words.__getitem__)
                words = [words[number] for number in by_word]
                ids = {word.encode(): number for number, word in enumerate(words)}
                orders[0] = Ngrams(*(values[by_word] for values in orders[0]))
            line = self.line()
        self.expect("\\end\\", line, counts)
        for word in (BOS, EOS):
            if word.encode() not in ids:
                raise RecipeError(f"{self.path}: no 1-gram {word}")
        if orders[-1].backoffs.any():
            raise RecipeError(
                f"{self.path}: its longest n-grams, of order {len(orders)}, have back-off weights, which only shorter ones "
                "may have; was it cut down from a longer model? Renormalise it with the tool that made it"
            )
        return Arpa.build(words, orders, self.path)

    def expect(self, wanted: str, line: str, counts: list[int]) -> None:
        if line != wanted:
            after = f" after the {counts[-1]} {len(counts)}-grams that the header announces" if counts else ""
            self.fail(f"expected '{wanted}'{after}, found {line!r}")

    def section(self, order: int, count: int, ids: dict[bytes, int]) -> Ngrams:
        """So many n-grams, blank lines between them passed over."""
        pieces = [Ngrams(*(np.zeros(0, dtype) for dtype in (np.int64, np.int64, np.float32, np.float32)))]
        while count:
            lines = list(itertools.islice(self.file, min(count, _CHUNK)))
            rows = [fields for line in lines if (fields := line.split())]
            try:
                pieces.append(_parsed(rows, order, ids))
            except (ValueError, LookupError):
                self.explain(lines, order, ids)
            self.number += len(lines)
            count -= len(rows)
            if not lines:
                self.line()  # which says what is missing
        return Ngrams(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))

    def explain(self, lines: list[bytes], order: int, ids: dict[bytes, int]) -> NoReturn:
        """Say which of these lines is wrong, and how."""
        for line in lines:
            self.number += 1
            fields = line.split()
            try:
                _parsed([fields] if fields else [], order, ids)
            except ValueError:
                text = line.decode(errors="replace").strip()
                if text.startswith("\\"):
                    self.fail(f"the {order}-grams end here; the header announces more")
                self.fail(f"expected log10 probability, {order} words, weight; found {text!r}")
            except LookupError as error:
                self.fail(f"the word {error.args[0].decode()!r} of a {order}-gram is no 1-gram")
        raise AssertionError


def _parsed(rows: list[list[bytes]], order: int, ids: dict[bytes, int]) -> Ngrams:
    """N-grams of the fields of lines.

    :raises ValueError: for a line of another form.
    :raises LookupError: for a word without id.
    """
    if not {order + 1, order + 2}.issuperset(map(len, rows)):
        raise ValueError
    log10_probs = np.array([float(row[0]) for row in rows])
    backoffs = np.array([float(row[-1]) if len(row) > order + 1 else 0.0 for row in rows])
    if not ((log10_probs <= _ROUNDING).all() and (backoffs < np.inf).all()):  # nor NaN
        raise ValueError
    *before, last = (np.array([ids[row[place]] for row in rows], np.int64) for place in range(1, order + 1))
    prefixes = np.zeros(len(rows), np.int64)
    for column in before:
        prefixes = prefixes * len(ids) + column
    return Ngrams(prefixes, last, *(values.clip(min=LOG_ZERO).astype(np.float32) for values in (log10_probs, backoffs)))
