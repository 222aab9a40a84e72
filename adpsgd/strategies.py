"""The strategies by name.

==================  =======================================================================================
``allreduce``       w <- w - a * (mean of all gradients): synchronous SGD, every learner waits for all
``dpsgd``           W <- W T_k - a G(W): synchronous averaging with the neighbours (``topology``)
``adpsgd-fixed``    W <- W T_1 - a G(stale W), T_1 the ring 0, 1, ..., L - 1; nobody waits
``adpsgd-random``   the same with a freshly permuted ring each round
``adpsgd``          the same with any ``topology``
``delay-by-one``    W <- W T_u - a G(W), the global average hidden behind the gradient;
                    ``stale_gradient``: w <- w - a * (mean of all gradients of the step before)
``hierarchical``    super-learners of ``group_size``: allreduce inside, adpsgd between them (``topology``)
``local-sgd``       every learner by itself, the average of all every ``period`` steps
==================  =======================================================================================

(Cui et al., arXiv 2110.11199, equations from memory of the paper; others as named at their classes.)
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

from adpsgd.asynchronous import Adpsgd, Hierarchical
from adpsgd.errors import AdpsgdError
from adpsgd.strategy import Strategy
from adpsgd.synchronous import Allreduce, DelayByOne, Dpsgd, LocalSgd, StaleGradient
from adpsgd.topology import TOPOLOGIES, Topology


def _topology(name: str) -> Topology:
    if name not in TOPOLOGIES:
        raise AdpsgdError(f"unknown topology {name!r}; known: {', '.join(TOPOLOGIES)}")
    return TOPOLOGIES[name]


def _delay_by_one(seed: int, stale_gradient: bool = False) -> Strategy:
    return StaleGradient() if stale_gradient else DelayByOne()


def _local_sgd(seed: int, period: int = 8) -> Strategy:
    if period < 1:
        raise AdpsgdError(f"local-sgd needs a period of at least one step, not {period}")
    return LocalSgd(period)


STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "allreduce": lambda seed: Allreduce(),
    "dpsgd": lambda seed, topology="fixed-ring": Dpsgd(_topology(topology), seed),
    "adpsgd-fixed": lambda seed: Adpsgd(TOPOLOGIES["fixed-ring"], seed),
    "adpsgd-random": lambda seed: Adpsgd(TOPOLOGIES["permuted-ring"], seed),
    "adpsgd": lambda seed, topology="matching": Adpsgd(_topology(topology), seed),
    "delay-by-one": _delay_by_one,
    "hierarchical": lambda seed, group_size=None, topology="permuted-ring": Hierarchical(_topology(topology), seed, group_size),
    "local-sgd": _local_sgd,
}


def strategy(text: str, seed: int) -> Strategy:
    """The strategy of that name, with options after commas: ``local-sgd,period=4``.

    :param seed: that of random topologies, the same at all learners.
    :raises AdpsgdError: for an unknown name or option.
    """
    name, *settings = text.split(",")
    if name not in STRATEGIES:
        raise AdpsgdError(f"unknown strategy {name!r}; known: {', '.join(STRATEGIES)}")
    known = list(inspect.signature(STRATEGIES[name]).parameters)[1:]
    options = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in known:
            raise AdpsgdError(f"strategy {name} has no option {key!r}; known: {', '.join(known) or 'none'}")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    made = STRATEGIES[name](seed, **options)
    made.description = f"{text}, seed {seed}"
    return made
