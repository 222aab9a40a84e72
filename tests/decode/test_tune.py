"""Choosing scales on lattices whose best paths are known at each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from local.datadir import DataDir, Recording, Utterance
from local.decode import DecodeConf
from local.lattice import Lattice, Point
from local.score.wer import Reference
from local.tune import Grid, choose, tune, widened
from tests.decode.test_decode import CONF

HEAD = ';; CATEGORY "0" "" ""\n;; LABEL "O" "Overall" "Overall"\n'
NAMES = {1: "right", 2: "wrong", 3: "[noise]"}


def errors(rows: list[list[int]]) -> dict[Point, int]:
    """Rows by scale 0.1, 0.2, ..., columns by penalty 0, 1, ..."""
    return {Point((i + 1) / 10, float(j)): value for i, row in enumerate(rows) for j, value in enumerate(row)}


@pytest.mark.parametrize(
    ("rows", "best", "edges"),
    [
        ([[9, 9, 9], [9, 5, 9], [9, 9, 9]], Point(0.2, 1.0), [0, 0]),
        ([[9, 9, 9], [9, 5, 9], [9, 4, 9]], Point(0.3, 1.0), [1, 0]),
        ([[9, 9, 9], [4, 5, 9], [9, 9, 9]], Point(0.2, 0.0), [0, -1]),
        ([[9, 9, 1], [4, 5, 9], [9, 9, 9]], Point(0.1, 2.0), [-1, 1]),
        ([[7, 7, 7], [7, 7, 7], [7, 7, 7]], Point(0.2, 1.0), [0, 0]),  # a tie: the middle
        ([[9], [5], [9]], Point(0.2, 0.0), [0, 0]),  # one penalty alone is no edge
        ([[5]], Point(0.1, 0.0), [0, 0]),
    ],
)
def test_choice(rows: list[list[int]], best: Point, edges: list[int]) -> None:
    assert choose(errors(rows)) == (best, edges)


@pytest.mark.parametrize(
    ("edges", "scales", "penalties"),
    [
        ([0, 0], (0.1, 0.2, 0.3), (-1.0, 0.0, 0.5)),
        ([1, -1], (0.1, 0.2, 0.3, 0.45), (-2.0, -1.0, 0.0, 0.5)),
        ([-1, 1], (0.05, 0.1, 0.2, 0.3), (-1.0, 0.0, 0.5, 1.0)),
    ],
)
def test_widening(edges: list[int], scales: tuple[float, ...], penalties: tuple[float, ...]) -> None:
    conf = widened(replace(CONF, acoustic_scales=(0.1, 0.2, 0.3), insertion_penalties=(-1.0, 0.0, 0.5)), edges)
    assert (conf.acoustic_scales, conf.insertion_penalties) == (scales, penalties)


def lattice(right_from: float, right_below: float) -> Lattice:
    """Says "right" where the scale is between these, else "wrong" or nothing.

    Of costs graph + scale * acoustic, "right" has 0 + 0; nothing is cheaper at scales below the first, "wrong" at those above
    the second.
    """
    arcs = [(0, 1, 1, 0.0, 0.0), (0, 1, 2, right_below, -1.0), (0, -1, 0, -right_from, 1.0), (1, -1, 0, 0.0, 0.0)]
    return Lattice.of_matrix(np.array(arcs, dtype=np.float32), "u")


def make_grid(folder: Path, lattices: dict[str, Lattice]) -> Grid:
    recordings = {"sw1-A": Recording("sw1-A", Path("call.sph"), 0, "sw1", "A", 160000)}
    utterances = {key: Utterance(key, "sw1-A", "sw1-A", 2.0 * n, 2.0 * n + 1, ()) for n, key in enumerate(lattices)}
    rows = "".join(f"sw1 A s {u.start} {u.end} <O> RIGHT\n" for u in utterances.values())
    (folder / "stm").write_text(HEAD + rows)
    (folder / "glm").write_text("")
    return Grid(DataDir(recordings, utterances), lattices, NAMES, Reference(folder / "stm", folder / "glm"))


def conf_of(*scales: float) -> DecodeConf:
    return replace(CONF, acoustic_scales=scales, insertion_penalties=(0.0,))


def test_the_scale_with_the_fewest_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = make_grid(tmp_path, {"a": lattice(0.15, 0.5), "b": lattice(0.05, 0.25)})
    tune(grid, conf_of(0.1, 0.2, 0.3), tmp_path / "best.json")
    best = json.loads((tmp_path / "best.json").read_text())
    assert Point.read(tmp_path / "best.json") == Point(0.2, 0.0)
    assert (best["wer"], best["edge"]) == (0.0, False)
    assert best["grid"] == {
        "0.1_0": {"N": 2, "sub": 0, "del": 1, "ins": 0},
        "0.2_0": {"N": 2, "sub": 0, "del": 0, "ins": 0},
        "0.3_0": {"N": 2, "sub": 1, "del": 0, "ins": 0},
    }
    assert "edge" not in capsys.readouterr().err


def test_an_edge_widens_the_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until the best point is inside; each point is scored once."""
    grid = make_grid(tmp_path, {"a": lattice(0.7, 1.5), "b": lattice(0.3, 1.5), "c": lattice(0.15, 1.5)})
    tune(grid, conf_of(0.1, 0.2), tmp_path / "best.json")
    best = json.loads((tmp_path / "best.json").read_text())
    assert (best["acoustic_scale"], best["edge"]) == (0.8, False)
    assert list(best["grid"]) == ["0.1_0", "0.2_0", "0.4_0", "0.8_0", "1.6_0"]
    assert "on the edge of the grid: widened" in capsys.readouterr().err


def test_an_edge_that_goes_on_for_ever_is_told(tmp_path: Path) -> None:
    """ "right" alone has the sound for it at any scale: more is never worse, and a tie goes to the middle, so here none is."""
    grid = make_grid(tmp_path, {"a": lattice(1000.0, 2000.0)})
    tune(grid, conf_of(0.1, 0.2, 0.3), tmp_path / "best.json")
    assert json.loads((tmp_path / "best.json").read_text())["wer"] == 100.0


def test_noise_words_are_cleaned_before_scoring(tmp_path: Path) -> None:
    arcs = [(0, 1, 1, 0.0, 0.0), (1, 2, 3, 0.0, 0.0), (2, -1, 0, 0.0, 0.0)]
    grid = make_grid(tmp_path, {"a": Lattice.of_matrix(np.array(arcs, dtype=np.float32), "a")})
    grid.score([0.1], [0.0])
    assert grid.counts[Point(0.1, 0.0)] == {"N": 1, "sub": 0, "del": 0, "ins": 0}
