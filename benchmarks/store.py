"""Speed and size of the frame store at the paper's 260 inputs, on made-up frames.

    python -m benchmarks.store [--hours 10] [--batch 160] [--seconds 10]

Prints frames a second of processor time on one core, in random order, and the disc space of 2,000 hours.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from local.am.egs import FRAMES, FrameStore

CORPUS_HOURS = 2000
FRAMES_AN_HOUR = 360_000
UTTERANCE, SIDE = 400, 50  # frames of an utterance, utterances of a side
PDFS = 32_000


def make(folder: Path, hours: float) -> FrameStore:
    """A store of 40 fMLLR, 40 log-mel and 100 i-vector dimensions, its frames on disc."""
    utterances = round(hours * FRAMES_AN_HOUR / UTTERANCE)
    draw = np.random.default_rng(1)
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float16, (utterances * UTTERANCE, 80))
    for number in range(utterances):
        features[number * UTTERANCE : (number + 1) * UTTERANCE] = draw.standard_normal((UTTERANCE, 80), np.float32)
    features.flush()
    np.save(folder / "targets.npy", draw.integers(0, PDFS, utterances * UTTERANCE).astype(np.int32))
    sides = np.arange(utterances) // SIDE
    return FrameStore(
        features=np.load(folder / "features.npy", mmap_mode="r"),
        plain=40,
        targets=np.load(folder / "targets.npy", mmap_mode="r"),
        bounds=np.arange(utterances + 1) * UTTERANCE,
        ivectors=draw.standard_normal((sides[-1] + 1, 100), np.float32),
        sides=sides,
        num_pdfs=PDFS,
        kinds=["fmllr", "ivector", "fbank"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=10)
    parser.add_argument("--batch", type=int, default=160)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        store = make(Path(name), arguments.hours)
        order = np.random.default_rng(2).permutation(len(store))
        batches = [order[first : first + arguments.batch] for first in range(0, len(order), arguments.batch)]
        began, done = time.process_time(), 0
        while time.process_time() - began < arguments.seconds:
            store.batch(batches[done % len(batches)])
            done += 1
        speed = done * arguments.batch * FRAMES / (time.process_time() - began)
        size = sum(path.stat().st_size for path in Path(name).iterdir()) / len(store.targets)
    print(f"{store.inputs} inputs, batches of {arguments.batch}: {speed:,.0f} frames/s on one core")
    print(f"{size:.0f} bytes a frame: {size * CORPUS_HOURS * FRAMES_AN_HOUR / 1e9:.0f} GB for {CORPUS_HOURS} hours")


if __name__ == "__main__":
    main()
