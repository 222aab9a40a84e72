"""Fixtures for what may be absent: recorded speech beside the checkout, NIST's SCTK. Their tests then skip, visibly."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from local.score.sctk import find

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Recorded speech in LDC layout, beside the checkout or where ``SHARED_DATA`` says; not part of the project."""
    folder = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no recorded speech at {folder} (set SHARED_DATA)")
    return folder


@pytest.fixture(scope="session")
def absent() -> Callable[[str], NoReturn]:
    """What to do where a program is not installed: in CI it is a failure, elsewhere a skip."""
    return pytest.fail if os.environ.get("CI") else pytest.skip


@pytest.fixture(scope="session")
def sctk(absent: Callable[[str], NoReturn]) -> Path:
    """The folder of NIST's ``hubscr.pl`` and ``sclite``."""
    return find() or absent("NIST's SCTK is not installed (Debian: apt-get install sctk)")
