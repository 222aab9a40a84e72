"""Fixtures for what may be absent: recorded speech beside the checkout, NIST's SCTK. Their tests then skip, visibly."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCTK_FOLDERS = ("/usr/lib/sctk/bin", "/usr/local/sctk/bin")


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
def sctk() -> Path:
    """The folder of NIST's ``hubscr.pl`` and ``sclite``; absent in CI is a failure, elsewhere a skip."""
    found = shutil.which("hubscr.pl")
    folders = [Path(found).parent] if found else [Path(folder) for folder in SCTK_FOLDERS]
    for folder in folders:
        if (folder / "hubscr.pl").exists():
            return folder
    message = "NIST's SCTK is not installed (Debian: apt-get install sctk)"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
