"""How long the preparation of 2,000 h takes: headers and transcripts of 14,137 calls, made up, in the discs' layout.

    python -m benchmarks.metadata [--share 1.0] [--keep FOLDER]

Audio files hold a header alone, which promises ten minutes of shorten-compressed speech: preparation does not decode it.
Transcripts have as many lines as the real ones on average, of words drawn by a power law.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

FISHER_CALLS, FISHER_LINES = 11_699, 190
SWITCHBOARD_CALLS, SWITCHBOARD_LINES = 2438, 52  # lines with words, a side
SECONDS = 600
WORDS = [f"w{number}" for number in range(30_000)]


def header(path: Path) -> None:
    """A SPHERE file without its data."""
    fields = ["NIST_1A", "   1024", "channel_count -i 2", "sample_rate -i 8000", "sample_n_bytes -i 1"]
    fields += [f"sample_count -i {SECONDS * 8000}", "sample_coding -s26 ulaw,embedded-shorten-v2.00", "end_head", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\n".join(fields).encode().ljust(1024))


def lines(rng: np.random.Generator, count: int) -> Iterator[tuple[float, float, str]]:
    """Segments in order of time."""
    edges = np.sort(rng.choice(SECONDS * 100 - 1, 2 * count, replace=False)) / 100
    lengths = rng.integers(1, 19, count)
    words = np.minimum(rng.zipf(1.3, lengths.sum()), len(WORDS)) - 1
    ends = np.cumsum(lengths)
    for place in range(count):
        text = " ".join(WORDS[word] for word in words[ends[place] - lengths[place] : ends[place]])
        yield edges[2 * place], edges[2 * place + 1], text


def make(root: Path, share: float) -> None:
    """Write both corpora, or a share of each."""
    rng = np.random.default_rng(1)
    for call in tqdm(range(1, round(share * FISHER_CALLS) + 1), desc="making Fisher"):
        part, name = 1 if call <= 5850 else 2, f"fe_03_{call:05d}"
        header(root / f"fisher_p{part}" / "audio" / name[6:9] / f"{name}.sph")
        path = root / f"fe_03_p{part}_tran" / "data" / "trans" / name[6:9] / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [f"{a:.2f} {b:.2f} {'AB'[i % 2]}: {text}" for i, (a, b, text) in enumerate(lines(rng, FISHER_LINES))]
        path.write_text("\n".join([f"# {name}.sph", "# Transcribed at the LDC", "", *rows, ""]))
    for call in tqdm(range(2001, 2001 + round(share * SWITCHBOARD_CALLS)), desc="making Switchboard"):
        header(root / f"swb1_d{1 + call % 4}" / "data" / f"sw0{call}.sph")
        for side in "AB":
            name = f"sw{call}{side}-ms98-a"
            path = root / "transcriptions" / name[2:4] / name[2:6] / f"{name}-trans.text"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = [f"{name}-{i:04d} {a:.6f} {b:.6f} {text}" for i, (a, b, text) in enumerate(lines(rng, SWITCHBOARD_LINES))]
            path.write_text("\n".join(rows) + "\n")


def timed(name: str, *arguments: str) -> None:
    """Run a stage and print its time and the peak memory of any so far."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", *arguments], check=True, stderr=subprocess.DEVNULL)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"| {name} | {time.perf_counter() - began:.0f} s | {peak:.1f} GiB |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the calls")
    parser.add_argument("--keep", type=Path, help="make the corpora there, or use those made before")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        root = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not (root / "transcriptions").exists():
            make(root, arguments.share)
        print("\n| stage | time | greatest memory so far |\n|---|---|---|")
        discs = [str(root / f"swb1_d{disc}") for disc in range(1, 5)]
        swbd1 = ["--audio", *discs, "--transcripts", str(root / "transcriptions"), "--out", str(root / "out/swbd1")]
        timed("swbd1", "recipes.swbd.swbd1", *swbd1)
        parts = [[str(root / pattern.format(part)) for part in (1, 2)] for pattern in ("fisher_p{}", "fe_03_p{}_tran")]
        parts = [[folder for folder in folders if Path(folder).exists()] for folders in parts]
        timed(
            "fisher", "recipes.swbd.fisher", "--audio", *parts[0], "--transcripts", *parts[1], "--out", str(root / "out/fisher")
        )
        (root / "glm").write_text(";; rules\n")
        conf = '{"dev_utterances": 4000, "heldout_hours": 10, "max_repeats": 300}'
        sets = [word for name in ("train", "dev", "heldout") for word in (f"--{name}", str(root / "out" / name))]
        data = [str(root / "out" / name) for name in ("swbd1", "fisher")]
        timed("subsets", "recipes.swbd.subsets", "--data", *data, "--glm", str(root / "glm"), "--conf", conf, *sets)


if __name__ == "__main__":
    main()
