"""Reading of what torch.save has written, with errors that name the file."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from local.cli import RecipeError


@contextlib.contextmanager
def saved(path: str | Path, what: str, stage: str) -> Iterator[Any]:
    """Give a file's content to a block that makes ``what`` of it.

    :raises RecipeError: where there is no such file, or the block finds it to be another; ``stage`` makes it.
    """
    if not Path(path).exists():
        raise RecipeError(f"{path}: no such {what}; run the stage '{stage}'")
    try:
        yield torch.load(path, weights_only=True)
    except (EOFError, KeyError, RuntimeError, TypeError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RecipeError(f"{path}: no {what} ({reason}); make it again with the stage '{stage}'") from None
