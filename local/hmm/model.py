"""The acoustic model of a GMM stage: topology, tree, transition probabilities and mixtures in one file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from local.hmm.gmm import Gmm
from local.hmm.topology import Topology, Transition, num_states
from local.hmm.tree import NO_PHONE, Tree
from local.saved import save, saved


class HmmArc(NamedTuple):
    """A transition of a phone in context: leaving ``source`` consumes one frame with the source state's pdf."""

    source: int
    target: int
    pdf: int
    log_prob: float
    transition: int  # its place in HmmModel.transitions


@dataclass
class HmmModel:
    """A trained model.

    Transition probabilities belong to a phone's states, whatever the context: there is too little to gain from more.
    """

    phones: dict[str, int]
    silence_phones: tuple[str, ...]
    topology: Topology
    tree: Tree
    transitions: Tensor  # (transitions,) float64 log-probabilities: each phone's arcs in the topology's order
    gmm: Gmm
    occupancy: Tensor  # (P,) float64: frames of each pdf in training
    projection: Tensor | None = None  # (D, 13 * odd): LDA and MLLT of spliced MFCC; None: MFCC with deltas
    unadapted: Gmm | None = None  # of a speaker-adapted model: the same Gaussians on features that are not

    def __post_init__(self) -> None:
        self._silence = {self.phones[name] for name in self.silence_phones}
        self._first: dict[int, int] = {}  # phone id to its first transition
        count = 0
        for phone in sorted(self.phones.values()):
            self._first[phone] = count
            count += len(self.arcs(phone))
        self.num_transitions = count

    @property
    def context_width(self) -> int:
        """1 for monophones, 3 for triphones."""
        return self.tree.context_width

    @property
    def num_pdfs(self) -> int:
        """Tied states."""
        return self.tree.num_pdfs

    @cached_property
    def num_states(self) -> dict[int, int]:
        """Emitting states of each phone id."""
        return {phone: num_states(self.arcs(phone)) for phone in self.phones.values()}

    def arcs(self, phone: int) -> tuple[Transition, ...]:
        """The topology's transitions of a phone id."""
        return self.topology.silence if phone in self._silence else self.topology.speech

    def hmm(self, window: tuple[int, ...]) -> list[HmmArc]:
        """The HMM of a phone in context.

        :param window: phone ids, ``context_width`` long, the phone in its centre; 0 beyond the utterance's edge.
        :return: arcs between states 0 (the first), ... n - 1 and n, which is final and not left.
        """
        phone = window[len(window) // 2]
        first = self._first[phone]
        return [
            HmmArc(
                arc.source,
                arc.target,
                self.tree.pdf(window, arc.source),
                float(self.transitions[first + index]),
                first + index,
            )
            for index, arc in enumerate(self.arcs(phone))
        ]

    def log_likelihoods(self, features: Tensor) -> Tensor:
        """``(frames, D)`` to log densities ``(frames, num_pdfs)``, float32."""
        return self.gmm.log_likelihoods(features)

    def silence_pdfs(self) -> Tensor:
        """Which pdfs are silence phones': ``(P,)`` bool."""
        found = torch.zeros(self.num_pdfs, dtype=torch.bool)
        for phone in self._silence:
            edge = (NO_PHONE,) * (self.context_width // 2)
            found[[arc.pdf for arc in self.hmm((*edge, phone, *edge))]] = True  # silence is not split by its context
        return found

    def initial_transitions(self) -> Tensor:
        """The topology's own log-probabilities for every phone."""
        probabilities = [arc.probability for phone in sorted(self._first) for arc in self.arcs(phone)]
        return torch.tensor(probabilities, dtype=torch.float64).log()

    def estimated_transitions(self, counts: Tensor, floor: float = 0.01) -> Tensor:
        """Log-probabilities from counts ``(transitions,)``, none below ``floor``; a state never left keeps its own."""
        estimated = self.transitions.clone()
        for phone, first in self._first.items():
            arcs = self.arcs(phone)
            for state in range(num_states(arcs)):
                places = torch.tensor([first + index for index, arc in enumerate(arcs) if arc.source == state])
                total = counts[places].sum()
                if total > 0:
                    probabilities = (counts[places] / total).clamp_min(floor)
                    estimated[places] = (probabilities / probabilities.sum()).log()
        return estimated

    def save(self, path: str | Path) -> None:
        """Write the model, whole or not at all."""
        content = {
            "phones": self.phones,
            "silence_phones": list(self.silence_phones),
            "topology": [[list(arc) for arc in part] for part in (self.topology.speech, self.topology.silence)],
            "tree": self.tree.to_list(),
            "transitions": self.transitions,
            "gmm": self.gmm.tensors,
            "occupancy": self.occupancy,
            "projection": self.projection,
            "unadapted": self.unadapted and self.unadapted.tensors,
        }
        save(path, content)

    @staticmethod
    def load(path: str | Path) -> HmmModel:
        """Read what :meth:`save` has written.

        :raises RecipeError: where the file is no such model.
        """
        with saved(path, "GMM-HMM model", "align") as content:
            speech, silence = (tuple(Transition(*arc) for arc in part) for part in content["topology"])
            return HmmModel(
                content["phones"],
                tuple(content["silence_phones"]),
                Topology(speech, silence),
                Tree.from_list(content["tree"]),
                content["transitions"],
                Gmm(*content["gmm"]),
                content["occupancy"],
                content["projection"],
                content["unadapted"] and Gmm(*content["unadapted"]),
            )
