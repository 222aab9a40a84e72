"""Files that appear whole or not at all, and Kaldi archives whose keys are checked."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import kaldiio
import numpy as np

from local.cli import RecipeError


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary name beside ``path``; rename it to ``path`` when the block ends well, else remove it."""
    path = Path(path)
    temporary = _temporary(path)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_dir(path: str | Path) -> Iterator[Path]:
    """Give a temporary folder beside ``path``; it replaces ``path`` when the block ends well, else it is removed."""
    path = Path(path)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """A name beside ``path``; what a killed process has left under such a name goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_archive(scp: str | Path, arrays: Iterable[tuple[str, np.ndarray]], lies_in: str | Path | None = None) -> int:
    """Write ``(key, array)`` pairs to the Kaldi archive beside ``scp`` and index it there; return how many.

    The archive has the name of the index with the suffix ``.ark``. Matrices are float32 or float64, vectors those
    or int32.
    The index is renamed into place last, so an index that exists names a whole archive.

    :param lies_in: the folder that the archive's will be renamed to.
    """
    scp = Path(scp)
    ark = scp.with_suffix(".ark")
    named = Path(lies_in or ark.parent) / ark.name
    count = 0
    with (
        atomic_path(scp) as temporary_scp,
        atomic_path(ark) as temporary_ark,
        kaldiio.WriteHelper(f"ark:{temporary_ark}") as writer,
        open(temporary_scp, "w", encoding="utf-8") as index,
    ):
        for key, array in arrays:
            offset = writer.fark.tell() + len(key.encode()) + 1
            writer(key, array)
            index.write(f"{key} {named}:{offset}\n")
            count += 1
    return count


def read_archive(scp: str | Path, expected: Iterable[str] | None = None) -> Mapping[str, np.ndarray]:
    """Open a Kaldi index for reading by key (lazily).

    :param expected: the keys that must be there.
    :raises RecipeError: for a missing or empty index, a key given twice, or expected keys that are absent.
    """
    scp = Path(scp)
    if not scp.exists():
        raise RecipeError(f"{scp}: no such archive index; run the stage that makes it")
    keys = [line.split(maxsplit=1)[0] for line in scp.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not keys:
        raise RecipeError(f"{scp}: the index is empty")
    if len(set(keys)) != len(keys):
        twice = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise RecipeError(f"{scp}: the key {twice} stands there twice")
    if expected is not None and (missing := sorted(set(expected) - set(keys))):
        raise RecipeError(f"{scp}: {len(missing)} of the expected keys are missing, the first is {missing[0]}")
    return kaldiio.load_scp(str(scp))


def join_archives(parts: Iterable[Path], out: Path) -> None:
    """Join jobs' indices, sorted by key; jobs that have none make none."""
    lines = sorted(line for part in parts if part.exists() for line in part.read_text().splitlines(keepends=True))
    if lines:
        write_text(out, "".join(lines))
