"""The states of a phone's hidden Markov model and the transitions between them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from local.cli import RecipeError
from local.files import write_text


class Transition(NamedTuple):
    """From a state to a state, with its probability before training; leaving ``source`` consumes one frame."""

    source: int
    target: int
    probability: float


@dataclass(frozen=True)
class Topology:
    """Transitions of the speech phones and of the silence phones, sorted by source.

    Emitting states count from 0, the first; the state behind the last one is final. Kaldi's shapes by default: three
    states from left to right for speech; for silence five, the inner three fully connected.
    """

    speech: tuple[Transition, ...]
    silence: tuple[Transition, ...]

    @staticmethod
    def default() -> Topology:
        """Kaldi's topology (``steps/train_mono.sh`` on ``utils/gen_topo.pl``)."""
        speech = [Transition(s, t, p) for s in range(3) for t, p in ((s, 0.75), (s + 1, 0.25))]
        silence = [Transition(0, target, 0.25) for target in range(4)]
        silence += [Transition(source, target, 0.25) for source in (1, 2, 3) for target in (1, 2, 3, 4)]
        silence += [Transition(4, 4, 0.75), Transition(4, 5, 0.25)]
        return Topology(tuple(speech), tuple(silence))

    def write(self, path: str | Path) -> None:
        """Write the topology as JSON."""
        write_text(path, json.dumps({"speech": self.speech, "silence": self.silence}, indent=1) + "\n")

    @staticmethod
    def read(path: str | Path) -> Topology:
        """Read what :meth:`write` has written.

        :raises RecipeError: where a state's probabilities do not sum to one, a state cannot be left, or a state is
            missing.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            topology = Topology(*(tuple(Transition(*arc) for arc in content[name]) for name in ("speech", "silence")))
            for name, transitions in (("speech", topology.speech), ("silence", topology.silence)):
                for state in range(num_states(transitions)):
                    leaving = [arc for arc in transitions if arc.source == state]
                    total = sum(arc.probability for arc in leaving)
                    if abs(total - 1) > 1e-6 or min(arc.probability for arc in leaving) <= 0:
                        raise RecipeError(
                            f"{path}: {name}: state {state}: expected positive probabilities that sum to 1, found "
                            f"{[arc.probability for arc in leaving]}"
                        )
                    if all(arc.target == state for arc in leaving):
                        raise RecipeError(f"{path}: {name}: state {state} is never left")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RecipeError(f"{path}: no topology ({error!r}); make it again with the stage 'lang'") from None
        return topology


def num_states(transitions: tuple[Transition, ...]) -> int:
    """The number of emitting states."""
    return max(arc.target for arc in transitions)
