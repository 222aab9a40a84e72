"""What a learner tells of its steps: JSON lines, and TensorBoard on request."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import IO, Any

from adpsgd.errors import AdpsgdError


class Telemetry:
    """A file of JSON lines, one a step, that a resumed run goes on with.

    ===================  ====================================================================================
    ``step``             of this learner, from 1
    ``epoch``            passes over the data that all learners together had claimed
    ``samples``, ``loss``  of this step; the loss is null where it was not finite
    ``lr``               the learning rate applied
    ``rounds``           exchanges this learner has taken part in
    ``staleness``        rounds whose outcome entered the weights between the reading of a gradient's weights and its use
    ``gradient_age``     batches that others have claimed between this learner's last two claims (made one batch ahead)
    ``moved``            2-norm of what the last exchange changed in this learner's model
    ``compute_seconds``  from the end of the last step to the call of this one
    ``wait_seconds``     this step waited for other learners
    ``mixing_seconds``   spent on exchanges since the start of the process, in whatever thread
    ===================  ====================================================================================

    Between epochs a line with ``consensus_distance``: root mean square over the learners of |w_l - mean|.
    """

    def __init__(self, path: Path, tensorboard: Path | None = None) -> None:
        """:param tensorboard: a folder for TensorBoard's event files.

        :raises AdpsgdError: where TensorBoard is asked for and not installed.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._board: Any = None
        if tensorboard is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise AdpsgdError(
                    "TensorBoard's files were asked for, but it is not installed: pip install tensorboard"
                ) from error
            self._board = SummaryWriter(str(tensorboard))

    def write(self, step: int, line: dict[str, float]) -> None:
        """One line; values that are not finite become null."""
        finite = {name: value if math.isfinite(value) else None for name, value in line.items()}
        self._file.write(json.dumps({"step": step, **finite}) + "\n")
        if self._board is not None:
            for name, value in line.items():
                self._board.add_scalar(f"learner/{name}", value, step)

    def close(self) -> None:
        """Leave nothing unwritten."""
        self._file.close()
        if self._board is not None:
            self._board.close()
