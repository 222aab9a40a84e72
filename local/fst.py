"""OpenFst's transducers as numpy arrays, so that millions of arcs are looked at and changed at once.

OpenFst's ``const`` file is a header, a table of states and a table of arcs; here it is read by mapping it into memory.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import kaldifst
import numpy as np

from local.arrays import distinct
from local.cli import RecipeError
from local.files import atomic_path

Fst = kaldifst.StdVectorFst

_MAGIC = 2125659606
_ALIGNMENT = 16  # bytes, of both tables, where the header has the flag
_HAS_ISYMBOLS, _HAS_OSYMBOLS, _IS_ALIGNED = 1, 2, 4
_EXPANDED = 1  # the one property that every file of this type has; OpenFst finds the others where it needs them
_UNALIGNED_VERSION, _ALIGNED_VERSION = 2, 1
_STATE = np.dtype([("final", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("iepsilons", "<u4"), ("oepsilons", "<u4")])
_ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("cost", "<f4"), ("nextstate", "<i4")])


@dataclass(frozen=True)
class FstArrays:
    """A transducer in the tropical semiring with S states and A arcs; the arcs of state s are
    ``offsets[s]:offsets[s + 1]``. The arrays may be read-only."""

    start: int  # -1: no states
    final: np.ndarray  # (S,) float32 cost; inf where a state is not final
    offsets: np.ndarray  # (S + 1,) int64
    ilabel: np.ndarray  # (A,) int32; 0 is epsilon
    olabel: np.ndarray  # (A,) int32
    cost: np.ndarray  # (A,) float32
    nextstate: np.ndarray  # (A,) int32

    @property
    def num_states(self) -> int:
        """S."""
        return len(self.final)

    @property
    def num_arcs(self) -> int:
        """A."""
        return len(self.ilabel)

    @cached_property
    def source(self) -> np.ndarray:
        """The state that each arc leaves: ``(A,)`` int32."""
        return np.repeat(np.arange(self.num_states, dtype=np.int32), np.diff(self.offsets))

    def is_deterministic(self) -> bool:
        """Whether no two arcs of a state have the same input label; epsilons may be as many as they like."""
        consuming = self.ilabel > 0
        source, ilabel = self.source[consuming], self.ilabel[consuming]
        return len(distinct(source * (np.int64(ilabel.max(initial=0)) + 1) + ilabel)) == len(source)

    def has_epsilon_cycle(self) -> bool:
        """Whether a path without input labels comes back to its start."""
        silent = self.ilabel == 0
        source, target = self.source[silent], self.nextstate[silent]
        while True:  # arcs to where none goes on are on no cycle
            goes_on = np.zeros(self.num_states, bool)
            goes_on[source] = True
            kept = goes_on[target]
            if kept.all():
                return len(source) > 0
            source, target = source[kept], target[kept]

    def log_sums(self) -> np.ndarray:
        """Logarithm of the sum of e to minus the costs of each state's arcs and of its end: ``(S,)`` float64."""
        arcs = np.bincount(self.source, np.exp(-self.cost.astype(np.float64)), self.num_states)
        return np.log(arcs + np.exp(-self.final.astype(np.float64)))

    def minimal_states(self) -> int:
        """The fewest states of a transducer with the same paths, labels and costs being one symbol: Moore's algorithm.

        Classes are 64-bit hashes. A collision, of chance S² / 2⁶⁵ a round, can only make the number too small.
        """
        labels = _hash(_hash(_hash(self.ilabel) ^ self.olabel.view(np.uint32)) ^ self.cost.view(np.uint32))
        own = classes = _hash(self.final.view(np.uint32))
        found = 0
        while (count := len(distinct(classes))) > found:
            if count == self.num_states:
                break
            found = count
            sums = np.concatenate([[np.uint64(0)], np.cumsum(_hash(labels ^ classes[self.nextstate]))])[self.offsets]
            classes = _hash(own + np.diff(sums))
        return count

    @staticmethod
    def of_arcs(
        start: int,
        final: np.ndarray,
        source: np.ndarray,
        ilabel: np.ndarray,
        olabel: np.ndarray,
        cost: np.ndarray,
        nextstate: np.ndarray,
    ) -> FstArrays:
        """A transducer of arcs in any order; arcs of one state keep theirs."""
        order = np.argsort(source, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=len(final)))])
        labels = (labels[order].astype(np.int32, copy=False) for labels in (ilabel, olabel))
        columns = (*labels, cost[order].astype(np.float32), nextstate[order].astype(np.int32, copy=False))
        return FstArrays(start, final.astype(np.float32), offsets, *columns)

    @staticmethod
    def read(path: str | Path) -> FstArrays:
        """Read a file that OpenFst or Kaldi or :meth:`write` has written, of type ``const`` or ``vector``.

        What :meth:`write` has written is mapped, not read: processes share the memory.

        :raises RecipeError: where the file is missing, of another type or semiring, cut short or damaged.
        """
        if not Path(path).exists():
            raise RecipeError(f"{path}: no such transducer; run the stage that makes it")
        try:
            with open(path, "rb") as file:
                fst_type = _read_header(file, path)[0]
        except (struct.error, UnicodeDecodeError):
            raise RecipeError(f"{path}: cut short, or no OpenFst file") from None
        if fst_type == "const":
            return _read_const(path)
        fst = Fst.read(str(path))
        if fst is None:
            raise RecipeError(f"{path}: cut short or damaged; make it anew")
        return FstArrays.of(fst)

    @staticmethod
    def of(fst: kaldifst.StdVectorFst | kaldifst.StdConstFst) -> FstArrays:
        """The arrays of OpenFst's transducer."""
        with _scratch() as path:
            if not kaldifst.StdConstFst(fst).write(str(path)):
                raise RecipeError(f"{path}: cannot be written; is there room in the folder for temporary files (TMPDIR)?")
            return _read_const(path)  # the mapping outlives the file's name

    def to_fst(self) -> kaldifst.StdVectorFst:
        """OpenFst's transducer of the arrays."""
        with _scratch() as path:
            self._write(path)
            return Fst(kaldifst.StdConstFst.read(str(path)))

    def write(self, path: str | Path) -> None:
        """Write OpenFst's ``const`` file, whole or not at all."""
        with atomic_path(path) as temporary:
            self._write(temporary)

    def _write(self, path: Path) -> None:
        if self.num_arcs >= 2**32 or self.num_states >= 2**31:
            raise RecipeError(f"{path}: {self.num_states} states and {self.num_arcs} arcs are too many for OpenFst's format")
        states = np.empty(self.num_states, _STATE)
        states["final"] = self.final
        states["first"] = self.offsets[:-1]
        states["arcs"] = np.diff(self.offsets)
        for name, labels in (("iepsilons", self.ilabel), ("oepsilons", self.olabel)):
            states[name] = np.diff(np.concatenate([[0], np.cumsum(labels == 0)])[self.offsets])
        arcs = np.empty(self.num_arcs, _ARC)
        for name in _ARC.names:
            arcs[name] = getattr(self, name)
        with open(path, "wb") as file:
            file.write(struct.pack("<i", _MAGIC))
            for text in (b"const", b"standard"):
                file.write(struct.pack("<i", len(text)) + text)
            numbers = (_ALIGNED_VERSION, _IS_ALIGNED, _EXPANDED, self.start, self.num_states, self.num_arcs)
            file.write(struct.pack("<iiQqqq", *numbers))
            for table in (states, arcs):
                file.write(bytes(-file.tell() % _ALIGNMENT))
                table.tofile(file)


def _hash(values: np.ndarray) -> np.ndarray:
    """SplitMix64's mixing of 64 bits (Steele, Lea and Flood 2014)."""
    mixed = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "fst"


def _read_header(file, path: str | Path) -> tuple[str, int, int, int, int, int]:
    """Type, version, flags, start, numbers of states and arcs."""

    def text() -> str:
        (length,) = struct.unpack("<i", file.read(4))
        return file.read(max(0, min(length, 64))).decode()

    (magic,) = struct.unpack("<i", file.read(4))
    fst_type, arc_type = (text(), text()) if magic == _MAGIC else ("", "")
    if fst_type not in ("const", "vector") or arc_type != "standard":
        found = f"'{fst_type}' of '{arc_type}' arcs" if magic == _MAGIC else "no OpenFst file"
        raise RecipeError(f"{path}: expected an OpenFst file of type 'const' or 'vector' with 'standard' arcs, found {found}")
    version, flags, _, start, num_states, num_arcs = struct.unpack("<iiQqqq", file.read(40))
    return fst_type, version, flags, start, num_states, num_arcs


def _read_const(path: str | Path) -> FstArrays:
    with open(path, "rb") as file:
        _, version, flags, start, num_states, num_arcs = _read_header(file, path)
        place, size = file.tell(), os.fstat(file.fileno()).st_size
    if flags & (_HAS_ISYMBOLS | _HAS_OSYMBOLS):
        raise RecipeError(f"{path}: symbol tables inside are not supported; take them out with fstsymbols")
    aligned = bool(flags & _IS_ALIGNED) or version == _ALIGNED_VERSION
    data = np.memmap(path, mode="r")

    def table(dtype: np.dtype, count: int) -> np.ndarray:
        nonlocal place
        place += -place % _ALIGNMENT if aligned else 0
        if count < 0 or place + count * dtype.itemsize > size:
            raise RecipeError(f"{path}: cut short: {size} bytes are too few for {num_states} states and {num_arcs} arcs")
        begin, place = place, place + count * dtype.itemsize
        return np.frombuffer(data, dtype, count, begin) if count else np.empty(0, dtype)

    states, arcs = table(_STATE, num_states), table(_ARC, num_arcs)
    offsets = np.concatenate([[0], np.cumsum(states["arcs"], dtype=np.int64)])
    targets = arcs["nextstate"]
    if (
        offsets[-1] != num_arcs
        or (states["first"] != offsets[:-1])[states["arcs"] > 0].any()
        or not -1 <= start < num_states
        or (num_arcs and not 0 <= targets.min() <= targets.max() < num_states)
    ):
        raise RecipeError(f"{path}: damaged: its tables of states and arcs do not belong together; make it anew")
    columns = {name: np.require(arcs[name], requirements="A") for name in ("ilabel", "olabel", "cost", "nextstate")}
    return FstArrays(start, np.require(states["final"], requirements="A"), offsets, **columns)
