"""Whole files or none, and archives with checked keys."""

from __future__ import annotations

from pathlib import Path

import kaldiio
import numpy as np
import pytest

from local.cli import RecipeError
from local.files import atomic_dir, atomic_path, join_archives, read_archive, write_archive, write_text


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "sub" / "a.txt"
    with pytest.raises(ZeroDivisionError), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert list(target.parent.iterdir()) == []
    write_text(target, "whole\n")
    assert target.read_text() == "whole\n"
    assert list(target.parent.iterdir()) == [target]


def test_what_a_killed_process_left_goes_with_the_next_writing(tmp_path: Path) -> None:
    (tmp_path / ".a.txt.123.tmp").write_text("half")
    (tmp_path / ".d.123.tmp").mkdir()
    write_text(tmp_path / "a.txt", "whole")
    with atomic_dir(tmp_path / "d"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "d"]


def test_a_folder_takes_the_place_of_the_old_one_only_when_done(tmp_path: Path) -> None:
    target = tmp_path / "d"
    with atomic_dir(target) as temporary:
        (temporary / "old").touch()
    with pytest.raises(ZeroDivisionError), atomic_dir(target) as temporary:
        (temporary / "new").touch()
        raise ZeroDivisionError
    assert [p.name for p in target.iterdir()] == ["old"]
    with atomic_dir(target) as temporary:
        (temporary / "new").touch()
    assert [p.name for p in target.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [target]


def test_an_archive_is_read_back_and_kaldiio_agrees(tmp_path: Path) -> None:
    arrays = {"utt-1": np.arange(6, dtype=np.float32).reshape(3, 2), "utt-2": np.array([4, 5], dtype=np.int32)}
    assert write_archive(tmp_path / "x.scp", arrays.items()) == 2
    for reader in (read_archive(tmp_path / "x.scp", expected=arrays), kaldiio.load_scp(str(tmp_path / "x.scp"))):
        for key, array in arrays.items():
            np.testing.assert_array_equal(reader[key], array)
    assert {key: a.tolist() for key, a in kaldiio.load_ark(str(tmp_path / "x.ark"))} == {
        key: a.tolist() for key, a in arrays.items()
    }


def test_missing_double_and_absent_keys_are_errors(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.scp", [("a", np.zeros((1, 1), np.float32))])
    with pytest.raises(RecipeError, match="1 of the expected keys are missing, the first is b"):
        read_archive(tmp_path / "x.scp", expected=["a", "b"])
    line = (tmp_path / "x.scp").read_text()
    (tmp_path / "x.scp").write_text(line + line)
    with pytest.raises(RecipeError, match="the key a stands there twice"):
        read_archive(tmp_path / "x.scp")
    (tmp_path / "x.scp").write_text("")
    with pytest.raises(RecipeError, match="the index is empty"):
        read_archive(tmp_path / "x.scp")
    with pytest.raises(RecipeError, match="no such archive index"):
        read_archive(tmp_path / "none.scp")


def test_a_failed_archive_leaves_nothing(tmp_path: Path) -> None:
    def broken():
        yield "a", np.zeros((1, 1), np.float32)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_archive(tmp_path / "x.scp", broken())
    assert list(tmp_path.iterdir()) == []


def test_an_archive_in_a_folder_that_is_renamed_and_jobs_joined(tmp_path: Path) -> None:
    for job, keys in enumerate((["b", "d"], ["a"])):
        with atomic_dir(tmp_path / str(job)) as folder:
            write_archive(
                folder / "x.scp", ((key, np.full(2, ord(key), np.float32)) for key in keys), lies_in=tmp_path / str(job)
            )
    join_archives([tmp_path / name / "x.scp" for name in ("0", "1", "none")], tmp_path / "x.scp")
    whole = read_archive(tmp_path / "x.scp")
    assert {key: whole[key].tolist() for key in whole} == {key: [ord(key)] * 2 for key in "abd"}
    join_archives([tmp_path / "none" / "x.scp"], tmp_path / "y.scp")
    assert not (tmp_path / "y.scp").exists()
