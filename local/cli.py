"""What every command line of the recipe shares: errors a user can act on, typed configuration, a clean exit."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import errno
import json
import os
import socket
import sys
import threading
import time
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

RUN = "RECIPE_RUN"  # set by the Snakefile: host and process that this job works for
_POLL_SECONDS = 1.0
_OF_THE_DISK = {
    errno.ENOSPC: "make room and start again",
    errno.EDQUOT: "make room and start again",
    errno.EROFS: "the output folder must be writable",
    errno.EACCES: "the output folder must be writable",
}


class RecipeError(Exception):
    """Something the user can mend. The message says what, where, expected and found, and what to do."""


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name nearest to ``name``, or the list of known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"


def from_mapping(cls: type[T], mapping: Mapping[str, Any], where: str) -> T:
    """Build the dataclass ``cls`` from ``mapping``.

    :param where: what to call the mapping in an error, e.g. ``"am"``.
    :raises RecipeError: for an unknown key (the nearest known one is named), a missing one, or a value of a wrong type.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for key in mapping:
        if key not in fields:
            raise RecipeError(f"{where}: unknown key {key!r}{nearest(key, fields)}")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in mapping:
            values[name] = _checked(mapping[name], hints[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise RecipeError(f"{where}: the key {name!r} is missing")
    return cls(**values)


def _checked(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_mapping(hint, value, where)  # type: ignore[arg-type]
    if origin in (tuple, list) and isinstance(value, (list, tuple)):
        return origin(_checked(item, arguments[0], f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict and isinstance(value, Mapping):
        return {key: _checked(item, arguments[1], f"{where}.{key}") for key, item in value.items()}
    options = arguments if origin is not None and type(None) in arguments else (hint,)
    for option in options:
        option = typing.get_origin(option) or option
        if option is float and isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if isinstance(option, type) and isinstance(value, option) and isinstance(value, bool) == (option is bool):
            return value
    expected = getattr(hint, "__name__", str(hint))
    raise RecipeError(f"{where}: expected {expected}, found {value!r} ({type(value).__name__})")


def parse_conf(cls: type[T], text: str, where: str = "--conf") -> T:
    """Build the dataclass ``cls`` from the JSON object ``text``, as the workflow passes a section of its config."""
    try:
        mapping = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecipeError(f"{where}: not JSON ({error}); found {text[:80]!r}") from None
    if not isinstance(mapping, dict):
        raise RecipeError(f"{where}: expected a JSON object, found {text[:80]!r}")
    return from_mapping(cls, mapping, where)


def run(main: Callable[[], None]) -> NoReturn:
    """Run a command line: a :class:`RecipeError`, a missing file or a full disk ends it with one message and exit code 1.

    The process also ends once the workflow that started it is gone (killed with SIGKILL, say): an orphan must not go on
    writing beside the run that follows.
    """
    _end_with_what_started_it()
    try:
        main()
    except (RecipeError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"error: {where}{error.strerror}: {_OF_THE_DISK[error.errno]}", file=sys.stderr, flush=True)
        sys.exit(1)
    sys.exit(0)


def _end_with_what_started_it() -> None:
    ended = []
    host, _, process = os.environ.get(RUN, "").partition(" ")
    if host == socket.gethostname():  # the tasks of other nodes are Slurm's to end
        ended.append((f"the workflow (process {process})", lambda: not _lives(int(process))))
    parent = os.getppid()
    if _command_of(parent) == "slurmstepd":  # killed, it leaves its tasks alone
        ended.append((f"the job step's slurmstepd (process {parent})", lambda: os.getppid() != parent))

    def watch() -> None:
        while True:
            for what, is_gone in ended:
                if is_gone():
                    with contextlib.suppress(OSError):  # who read it may be gone too
                        print(f"error: {what} is gone; stopping", file=sys.stderr, flush=True)
                    os._exit(1)
            time.sleep(_POLL_SECONDS)

    if ended:
        threading.Thread(target=watch, daemon=True, name="workflow-watch").start()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # by another's process of the same number
        return False
    return True


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
    except OSError:
        return ""
