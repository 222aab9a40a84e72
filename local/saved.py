"""Models in files: written whole or not at all, read with errors that name the file."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from local.cli import RecipeError
from local.files import atomic_path


def save(path: str | Path, content: Any) -> None:
    """Write tensors, numbers, names and containers of them."""
    with atomic_path(path) as temporary:
        torch.save(content, temporary)


@contextlib.contextmanager
def saved(path: str | Path, what: str, stage: str) -> Iterator[Any]:
    """Give what :func:`save` has written to a block that makes ``what`` of it.

    :raises RecipeError: where there is no such file, or the block finds it to be another; ``stage`` makes it.
    """
    if not Path(path).exists():
        raise RecipeError(f"{path}: no such {what}; run the stage '{stage}'")
    try:
        yield torch.load(path, weights_only=True)
    except (EOFError, KeyError, RuntimeError, TypeError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RecipeError(f"{path}: no {what} ({reason}); make it again with the stage '{stage}'") from None
