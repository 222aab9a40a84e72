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


@settings(max_examples=60, deadline=None)
@given(transducers())
def test_fewest_states_are_those_that_openfst_finds(drawn: tuple[str, int]) -> None:
    first_of_each = {tuple(line.split()[::2][:2]): line for line in drawn[0].splitlines() if len(line.split()) == 5}
    ends = [line for line in drawn[0].splitlines() if len(line.split()) == 2]
    fst = kaldifst.compile("".join(f"{line}\n" for line in [*first_of_each.values(), *ends]), acceptor=False)
    kaldifst.connect(fst)
    fewest = FstArrays.of(fst).minimal_states()
    kaldifst.minimize_encoded(fst)
    assert fewest == fst.num_states == FstArrays.of(fst).minimal_states()


def test_loops_that_differ_late_are_not_one() -> None:
    """Six states that only the sixth step tells apart, and six that nothing does."""
    line = "".join(f"{s} {s + 1} 1 1 0\n" for s in range(6)) + "6\n"
    assert FstArrays.of(kaldifst.compile(line, acceptor=False)).minimal_states() == 7
    ring = "".join(f"{s} {(s + 1) % 6} 1 1 0\n{s}\n" for s in range(6))
    assert FstArrays.of(kaldifst.compile(ring, acceptor=False)).minimal_states() == 1


@pytest.mark.parametrize(
    ("text", "deterministic", "cycle"),
    [
        ("0 1 1 0\n0 1 2 0\n1\n", True, False),
        ("0 1 1 0\n0 1 1 3\n1\n", False, False),
        ("0 1 0 0\n0 2 0 1\n1 2 0 0\n2\n", True, False),
        ("0 1 0 0\n1 2 0 1\n2 1 0 0\n2\n", True, True),
        ("0 0 0 1\n0\n", True, True),
        ("0 1 0 0\n1 0 1 0\n1\n", True, False),
    ],
)
def test_properties(text: str, deterministic: bool, cycle: bool) -> None:
    arrays = FstArrays.of(kaldifst.compile(text, acceptor=False))
    assert (arrays.is_deterministic(), arrays.has_epsilon_cycle()) == (deterministic, cycle)


def test_log_sums() -> None:
    sums = FstArrays.of(make()).log_sums()
    assert sums == pytest.approx([np.log(np.exp(-0.5) + np.exp(-1.5)), np.log(2 * np.exp(-2)), -0.25])


def test_arcs_in_any_order() -> None:
    columns = np.array([[1, 3, 4, 2], [0, 1, 2, 1], [0, 0, 3, 2]])  # source, labels, target
    source, ilabel, olabel, target = columns.T
    made = FstArrays.of_arcs(0, np.array([np.inf, 2, 0.25]), source, ilabel, olabel, np.array([2, 0.5, 1.5]), target)
    assert str(made.to_fst()) == str(make())
