"""The HMM topology: Kaldi's shapes, its file, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local.cli import RecipeError
from local.hmm.topology import Topology, num_states


def test_default_has_kaldis_shapes() -> None:
    topology = Topology.default()
    assert (num_states(topology.speech), num_states(topology.silence)) == (3, 5)
    assert {(arc.source, arc.target) for arc in topology.speech} == {(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3)}
    ergodic = {(source, target) for source in (1, 2, 3) for target in (1, 2, 3, 4)}
    ends = {(0, 0), (0, 1), (0, 2), (0, 3), (4, 4), (4, 5)}
    assert {(arc.source, arc.target) for arc in topology.silence} == ergodic | ends


def test_written_and_read_again(tmp_path: Path) -> None:
    Topology.default().write(tmp_path / "topo.json")
    assert Topology.read(tmp_path / "topo.json") == Topology.default()


@pytest.mark.parametrize(
    ("speech", "message"),
    [
        ([[0, 0, 0.5], [0, 1, 0.4]], "sum to 1"),
        ([[0, 0, 1.5], [0, 1, -0.5]], "positive"),
        ([[0, 0, 1.0], [1, 2, 1.0]], "never left"),
        ([[0, 2, 1.0]], "state 1"),
        ([[0, 1]], "no topology"),
    ],
)
def test_a_topology_that_is_none_is_refused(tmp_path: Path, speech: list[list[float]], message: str) -> None:
    content = {"speech": speech, "silence": [[0, 1, 1.0]]}
    (tmp_path / "topo.json").write_text(json.dumps(content))
    with pytest.raises(RecipeError, match=message):
        Topology.read(tmp_path / "topo.json")


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"topo\.json"):
        Topology.read(tmp_path / "topo.json")
    (tmp_path / "topo.json").write_text("{")
    with pytest.raises(RecipeError, match="stage 'lang'"):
        Topology.read(tmp_path / "topo.json")
