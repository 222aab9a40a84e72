"""What language models of made-up text cost: time and memory of each step, in a process of its own.

    python -m benchmarks.lm [--words 500000 2000000] [--order 4]

Words are as frequent as in Zipf's law, and mostly follow one of a few that the word before prefers. A model of each text; then,
of the largest, reading, interpolation with the model of another text of a third of the words, pruning, perplexity and G.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from local.lexicon import Lang, LexiconConf, make_lang
from local.lm import Arpa
from local.lm.estimate import estimate
from local.lm.grammar import to_acceptor
from local.lm.mix import mix
from local.lm.prune import prune

VOCABULARY = 30_000
SUCCESSORS = 64  # that a word prefers
PREFERRED = 0.6  # share of words that are one of these
SENTENCE = 10  # words
THRESHOLDS = (1e-9, 1e-8, 1e-7)
OOV = "<unk>"


def make_text(words: int, seed: int) -> list[list[str]]:
    """Sentences of so many words in all; the language is the same for every seed."""
    language = np.random.default_rng(0)
    shares = 1 / np.arange(1, VOCABULARY + 1) ** 1.05
    shares /= shares.sum()
    successors = language.choice(VOCABULARY, (VOCABULARY, SUCCESSORS), p=shares)
    draw = np.random.default_rng(seed)
    drawn = draw.choice(VOCABULARY, words, p=shares).tolist()
    prefers = (draw.random(words) < PREFERRED).tolist()
    which = (SUCCESSORS * draw.random(words) ** 3).astype(int).tolist()
    text, word = [], 0
    for number in range(words):
        word = int(successors[word, which[number]]) if prefers[number] else drawn[number]
        text.append(f"w{word}")
    return [text[first : first + SENTENCE] for first in range(0, words, SENTENCE)]


def make_dictionary(folder: Path) -> Lang:
    """A lexicon of all the words."""
    folder.mkdir()
    for name, line in {"silence_phones": "sil", "nonsilence_phones": "a", "optional_silence": "sil", "oov": OOV}.items():
        (folder / f"{name}.txt").write_text(f"{line}\n")
    entries = [f"{OOV}\t1.0\tsil\n", *(f"w{number}\t1.0\ta\n" for number in range(VOCABULARY))]
    (folder / "lexiconp.txt").write_text("".join(entries))
    make_lang(folder, LexiconConf(0.5), folder / "lang")
    return Lang.read(folder / "lang")


def figures(model: Arpa) -> str:
    """N-grams by order."""
    return " / ".join(f"{len(section.keys):,}" for section in model.sections)


def step(name: str, arguments: argparse.Namespace) -> str:
    """Do a step on what is in the folder and return a row of the table: step, what came out, seconds, GB at most."""
    folder, models = arguments.folder, [arguments.folder / f"{part}.gz" for part in ("model", "other")]
    kind, _, parameter = name.partition(" ")
    if kind == "estimate":
        text, lang, out = make_text(int(parameter), arguments.seed), Lang.read(folder / "dict/lang"), models[arguments.seed - 1]
        before = time.monotonic()
        model = estimate(text, set(lang.lexicon), lang, arguments.order)
        seconds, result = time.monotonic() - before, figures(model)
        peak = memory()
        model.write(out)
        return f"| estimate on {int(parameter):,} words | {result} | {seconds:.0f} | {peak:.1f} |"
    before = time.monotonic()
    model = Arpa.read(models[0])
    if kind == "read":
        size = sum(array.nbytes for section in model.sections for array in section)
        return f"| read | {size / 2**30:.2f} GB as arrays | {time.monotonic() - before:.0f} | {memory():.1f} |"
    other = Arpa.read(models[1]) if kind == "mix" else None
    text = make_text(100_000, 3)
    before = time.monotonic()
    if kind == "write":
        model.write(folder / "written.gz")
        result = f"{(folder / 'written.gz').stat().st_size / 2**20:.0f} MB"
    elif kind == "mix":
        result = figures(mix([model, other], [0.7, 0.3]))
    elif kind == "prune":
        pruned = prune(model, float(parameter))
        seconds = time.monotonic() - before
        result = f"{figures(pruned)}; perplexity {pruned.perplexity(text, OOV)['perplexity']:.1f}"
        return f"| prune by {parameter} | {result} | {seconds:.0f} | {memory():.1f} |"
    elif kind == "perplexity":
        result = f"{model.perplexity(text, OOV)['perplexity']:.1f} on {sum(map(len, text)):,} words"
    elif kind == "G":
        fst = to_acceptor(model, Lang.read(folder / "dict/lang").words)
        result = f"{fst.num_states:,} states, {fst.num_arcs:,} arcs"
    elif kind == "look-ups":
        asked = [
            (tuple(sentence[place - 3 : place]), sentence[place]) for sentence in text for place in range(3, len(sentence))
        ]
        before = time.monotonic()
        for history, word in asked:
            model.log10_prob(history, word)
        result = f"{len(asked) / (time.monotonic() - before):,.0f} a second, histories new"
    return f"| {name} | {result} | {time.monotonic() - before:.1f} | {memory():.1f} |"


def memory() -> float:
    """The most that this process has taken, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, nargs="+", default=[500_000, 2_000_000])
    parser.add_argument("--order", type=int, default=4)
    parser.add_argument("--step", help=argparse.SUPPRESS)  # what a process of its own is to do
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(step(arguments.step, arguments), flush=True)
        return
    print("| step | result | seconds | GB at most |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        make_dictionary(Path(name) / "dict")
        largest = max(arguments.words)
        steps = [(f"estimate {words}", 1) for words in sorted(arguments.words)] + [(f"estimate {largest // 3}", 2)]
        pruning = [f"prune {threshold:g}" for threshold in THRESHOLDS]
        steps += [(rest, 1) for rest in ("read", "write", "mix", *pruning, "perplexity", "G", "look-ups")]
        for of_step, seed in steps:
            command = [sys.executable, "-m", "benchmarks.lm", "--folder", name, "--step", of_step, "--seed", str(seed)]
            subprocess.run([*command, "--order", str(arguments.order)], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
