"""The model: its HMMs, its transition probabilities, its file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from local.cli import RecipeError
from local.hmm.model import HmmModel
from local.hmm.topology import Topology
from tests.hmm.planted import PHONES, make_language, random_model, small_topology


def model_of(width: int) -> HmmModel:
    return random_model(make_language(Topology.default()), width, seed=3)


def sums_of_states(model: HmmModel, window: tuple[int, ...]) -> list[float]:
    arcs = model.hmm(window)
    states = max(arc.target for arc in arcs)
    return [sum(torch.tensor(arc.log_prob).exp().item() for arc in arcs if arc.source == s) for s in range(states)]


def test_hmm_of_a_phone_in_context() -> None:
    model = model_of(3)
    window = (PHONES["b"], PHONES["a"], 0)
    arcs = model.hmm(window)
    assert [(arc.source, arc.target) for arc in arcs] == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3)]
    for arc in arcs:
        assert arc.pdf == model.tree.pdf(window, arc.source)
        assert arc.log_prob == float(model.transitions[arc.transition])
    assert max(arc.target for arc in model.hmm((3, PHONES["sil"], 4))) == 5


def test_transitions_sum_to_one_before_and_after_training() -> None:
    model = model_of(1)
    counts = torch.rand(model.num_transitions, generator=torch.Generator().manual_seed(0)).double() * 100
    counts[: len(counts) // 3] = 0  # phones that were never seen
    for transitions in (model.transitions, model.estimated_transitions(counts)):
        model.transitions = transitions
        for phone in PHONES.values():
            assert sums_of_states(model, (phone,)) == pytest.approx([1.0] * model.num_states[phone])


def test_transitions_are_the_shares_of_the_counts() -> None:
    model = random_model(make_language(small_topology()), 1, seed=0)
    counts = torch.zeros(model.num_transitions, dtype=torch.float64)
    stay, leave = (arc.transition for arc in model.hmm((PHONES["a"],)))
    counts[stay], counts[leave] = 30, 10
    never, always = (arc.transition for arc in model.hmm((PHONES["b"],)))
    counts[always] = 10
    found = model.estimated_transitions(counts).exp()
    assert found[[stay, leave]].tolist() == pytest.approx([0.75, 0.25])
    assert found[[never, always]].tolist() == pytest.approx([0.01 / 1.01, 1 / 1.01])  # not below the floor
    unseen = [arc.transition for arc in model.hmm((PHONES["sil"],))]
    assert found[unseen].tolist() == pytest.approx([0.5, 0.3, 0.2, 0.7, 0.3])


@pytest.mark.parametrize("width", [1, 3])
def test_saved_and_loaded_it_is_the_same(tmp_path: Path, width: int) -> None:
    model = model_of(width)
    model.occupancy = torch.arange(model.num_pdfs, dtype=torch.float64)
    model.save(tmp_path / "model.pt")
    loaded = HmmModel.load(tmp_path / "model.pt")
    assert (loaded.context_width, loaded.num_pdfs) == (width, model.num_pdfs)
    assert (loaded.phones, loaded.silence_phones, loaded.topology) == (
        model.phones,
        model.silence_phones,
        model.topology,
    )
    window = (2, 4, 5)[:width] if width == 3 else (4,)
    assert loaded.hmm(window) == model.hmm(window)
    assert torch.equal(loaded.occupancy, model.occupancy)
    x = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded.log_likelihoods(x), model.log_likelihoods(x))
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such GMM-HMM model"):
        HmmModel.load(tmp_path / "model.pt")
    torch.save({"weights": torch.ones(2)}, tmp_path / "model.pt")
    with pytest.raises(RecipeError, match=r"model\.pt: no GMM-HMM model"):
        HmmModel.load(tmp_path / "model.pt")
    (tmp_path / "model.pt").write_bytes(b"half a fi")
    with pytest.raises(RecipeError, match=r"model\.pt: no GMM-HMM model"):
        HmmModel.load(tmp_path / "model.pt")
