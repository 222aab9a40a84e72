"""Transducers as arrays: what OpenFst writes is what is read, and the other way round."""

from __future__ import annotations

from pathlib import Path

import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.cli import RecipeError
from local.fst import FstArrays

TEXT = "0 1 1 2 0.5\n0 2 0 3 1.5\n1 2 3 4 2\n1 2\n2 0.25\n"


def make() -> kaldifst.StdVectorFst:
    return kaldifst.compile(TEXT, acceptor=False)


@st.composite
def transducers(draw: st.DrawFn) -> tuple[str, int]:
    """OpenFst's text form, every state named, and the number of states."""
    states = draw(st.integers(1, 5))
    number, cost = st.integers(0, 4), st.integers(0, 40).map(lambda n: n / 8)
    arcs = draw(st.lists(st.tuples(*[st.integers(0, states - 1)] * 2, number, number, cost), max_size=12))
    finals = {state: draw(cost) for state in range(states)}
    return "".join(" ".join(map(str, row)) + "\n" for row in [*arcs, *finals.items()]), states


@settings(max_examples=40, deadline=None)
@given(transducers())
def test_round_trip_is_exact(drawn: tuple[str, int]) -> None:
    fst = kaldifst.compile(drawn[0], acceptor=False)
    arrays = FstArrays.of(fst)
    assert (arrays.start, arrays.num_states) == (fst.start, fst.num_states)
    rows = [
        (state, arc.ilabel, arc.olabel, arc.weight.value, arc.nextstate)
        for state in range(fst.num_states)
        for arc in kaldifst.ArcIterator(fst, state)
    ]
    assert rows == list(
        zip(*(getattr(arrays, n).tolist() for n in ("source", "ilabel", "olabel", "cost", "nextstate")), strict=True)
    )
    assert [fst.final(state).value for state in range(fst.num_states)] == arrays.final.tolist()
    assert str(arrays.to_fst()) == str(fst)


@pytest.mark.parametrize("cls", [kaldifst.StdVectorFst, kaldifst.StdConstFst])
def test_reads_what_openfst_writes(cls: type, tmp_path: Path) -> None:
    cls(make()).write(str(tmp_path / "fst"))
    arrays = FstArrays.read(tmp_path / "fst")
    assert arrays.final.tolist() == [np.inf, 2, 0.25]
    assert arrays.offsets.tolist() == [0, 2, 3, 3]
    assert arrays.cost.tolist() == [0.5, 1.5, 2]
    assert (arrays.ilabel.dtype, arrays.cost.dtype, arrays.offsets.dtype) == (np.int32, np.float32, np.int64)


def test_openfst_reads_what_it_writes(tmp_path: Path) -> None:
    FstArrays.of(make()).write(tmp_path / "fst")
    fst = kaldifst.StdConstFst.read(str(tmp_path / "fst"))
    assert str(fst) == str(make())
    assert [fst.num_input_epsilons(state) for state in range(3)] == [1, 0, 0]
    again = FstArrays.read(tmp_path / "fst")
    assert again.ilabel.flags.aligned
    assert not again.ilabel.flags.writeable  # mapped
    again.write(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "fst").read_bytes()


def test_empty() -> None:
    arrays = FstArrays.of(kaldifst.StdVectorFst())
    assert (arrays.start, arrays.num_states, arrays.num_arcs) == (-1, 0, 0)
    assert arrays.to_fst().num_states == 0


@pytest.mark.parametrize("cls", [kaldifst.StdVectorFst, kaldifst.StdConstFst])
def test_every_truncation_is_an_error(cls: type, tmp_path: Path) -> None:
    cls(make()).write(str(tmp_path / "fst"))
    whole = (tmp_path / "fst").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "fst").write_bytes(whole[:length])
        with pytest.raises(RecipeError, match=r"cut short|found no OpenFst file|expected an OpenFst"):
            FstArrays.read(tmp_path / "fst")


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such transducer"):
        FstArrays.read(tmp_path / "absent")
    (tmp_path / "text").write_text(TEXT)
    with pytest.raises(RecipeError, match="found no OpenFst file"):
        FstArrays.read(tmp_path / "text")
    FstArrays.of(make()).write(tmp_path / "fst")
    whole = (tmp_path / "fst").read_bytes()
    (tmp_path / "log").write_bytes(whole.replace(b"standard", b"standarX"))
    with pytest.raises(RecipeError, match="found 'const' of 'standarX' arcs"):
        FstArrays.read(tmp_path / "log")
    (tmp_path / "damaged").write_bytes(whole[:-4] + b"\x09\0\0\0")
    with pytest.raises(RecipeError, match="damaged"):
        FstArrays.read(tmp_path / "damaged")
