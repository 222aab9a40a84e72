"""The exceptions of this package, and what their messages share."""

from collections.abc import Mapping
from typing import Any


class AdpsgdError(Exception):
    """Something the user can mend: the message says what, which learner, expected and found, and what to do."""


class ExchangeError(AdpsgdError):
    """An exchange with other learners has failed: most likely one of them has gone."""


def differing(ours: Mapping[str, Any], theirs: Mapping[str, Any], between: str) -> str:
    """Name each key with different values in both, as ``key: ours<between>theirs``."""
    names = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
    return "; ".join(f"{name}: {ours.get(name)}{between}{theirs.get(name)}" for name in names)
