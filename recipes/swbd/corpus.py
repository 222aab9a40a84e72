"""What the preparation of every corpus shares: files on discs, lines, times on a grid, segments taken in or left out."""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar

from tqdm.contrib.concurrent import thread_map

from local import audio
from local.cli import RecipeError
from local.datadir import DataDir, Recording, Utterance

T = TypeVar("T")

SIDES = "AB"
_TOLERATED_OVERHANG = Decimal("0.5")  # seconds a segment may end past the audio and be cut
_LONGEST = 10**6  # seconds that a time may be
_MIN_SHARE = 0.95
_READERS = 16  # headers read at once: on a network file system each is a wait
_FULL_SHARE = 0.5  # of the calls known: from here on a corpus is taken for the whole one


def find_files(roots: Sequence[Path], pattern: str, expected: str) -> dict[str, Path]:
    """Find the files below ``roots`` whose whole name matches ``pattern``, whatever the case: its first group to the path.

    :param expected: what to say where there is none.
    :raises RecipeError: where there is none, or two of one key.
    """
    found: dict[str, Path] = {}
    name = re.compile(pattern, re.IGNORECASE)
    for root in roots:
        if not root.is_dir():
            raise RecipeError(f"{root}: no such folder; expected {expected}")
        for path in sorted(root.rglob("*")):
            if match := name.fullmatch(path.name):
                key = match[1].upper()
                if key in found:
                    raise RecipeError(f"{key} stands there twice: {found[key]} and {path}; remove one")
                found[key] = path
    if not found:
        raise RecipeError(f"{', '.join(map(str, roots))}: nothing there like {pattern}; expected {expected}")
    return dict(sorted(found.items()))


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not empty: UTF-8 or else Latin-1, whatever its line ends.

    :raises RecipeError: for a file that cannot be read, and for control characters, with the line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror}); expected a text file") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        if not line.strip():
            continue
        if any(not character.isprintable() and character not in "\t\xa0" for character in line):
            raise RecipeError(f"{path}:{number}: control characters in {line[:80]!r}: a damaged file? Copy it again")
        yield number, line


def warn_if_empty(segments: Iterable[T], what: str, path: Path) -> Iterator[T]:
    """Hand on the segments of a transcript; say so where there are none."""
    empty = True
    for segment in segments:
        empty = False
        yield segment
    if empty:
        print(f"warning: {what}: no segment in {path}", file=sys.stderr)


def read_table(path: Path) -> list[list[str]]:
    """The rows of a table of commas, their fields without blanks and quotes around them.

    :raises RecipeError: as :func:`read_lines`, and for a line that is no row.
    """
    try:
        return [[field.strip(' "') for field in row] for row in csv.reader(line for _, line in read_lines(path))]
    except csv.Error as error:
        raise RecipeError(f"{path}: not a table of commas ({error})") from None


def seconds(text: str) -> Decimal:
    """A time in seconds.

    :raises ValueError: where it is none.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(text) from None
    if "_" in text or not value.is_finite() or abs(value) > _LONGEST:
        raise ValueError(text)
    return value


def centiseconds(time: Decimal) -> int:
    """Round half up to 1/100 s."""
    return int((time * 100).to_integral_value(ROUND_HALF_UP))


def utterance_id(side: str, start: int, end: int) -> str:
    """``sw02001-A_000098-001156`` of a side (with its speaker before it, where that is a person) and centiseconds."""
    return f"{side}_{start:06d}-{end:06d}"


def check_pairs(what: str, with_audio: set[str], with_text: set[str]) -> None:
    """See that audio and transcripts belong together.

    :raises RecipeError: for transcripts without audio, and where more than 5 % of the calls have no transcript.
    """
    if orphans := sorted(with_text - with_audio):
        raise RecipeError(
            f"{what}: {len(orphans)} calls have a transcript but no audio: {_some(orphans)}; "
            "copy the missing discs, or remove these transcripts"
        )
    silent = sorted(with_audio - with_text)
    message = f"{what}: {len(silent)} of {len(with_audio)} calls have audio but no transcript: {_some(silent)}"
    if len(silent) > (1 - _MIN_SHARE) * len(with_audio) and len(silent) > 1:
        raise RecipeError(f"{message}; give all transcripts, or leave these discs out")
    if silent:
        print(f"warning: {message}", file=sys.stderr)


def headers(paths: Mapping[str, Path], progress: str, summed: bool = False) -> dict[str, audio.AudioInfo]:
    """Read the headers of audio files, many at once.

    :param summed: a header may count both channels together, as those of Switchboard's release 1 do.
    :raises RecipeError: for a file that is no audio of 8 kHz, is cut short or has not both sides.
    """
    found = thread_map(audio.info, paths.values(), max_workers=_READERS, desc=progress, mininterval=2, unit="call")
    for path, info in zip(paths.values(), found, strict=True):
        if info.channels != len(SIDES):
            missing = "side B is missing" if info.channels < len(SIDES) else "too many channels"
            raise RecipeError(f"{path}: {missing}: the file has {info.channels} channel(s), a call two; copy the file again")
        if info.summed and not summed:
            raise RecipeError(f"{path}: cut short: the data hold half of what the header promises; copy it again")
    return dict(zip(paths, found, strict=True))


class Collection:
    """A corpus as its segments are read: what is taken in, and what is not, with the reason and the place."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.recordings: dict[str, Recording] = {}
        self.utterances: dict[str, Utterance] = {}
        self.genders: dict[str, str] = {}
        self.calls: set[str] = set()
        self.left_out: Counter[str] = Counter()  # by a rule of the recipe
        self.dropped: Counter[str] = Counter()  # for a fault
        self.mended: Counter[str] = Counter()
        self.log: list[str] = []
        self._last: dict[tuple[str, str], int] = {}

    def leave_out(self, where: str, reason: str) -> None:
        """Count and name a segment that the recipe's rules do not take."""
        self.left_out[reason] += 1
        self.log.append(f"{where}: left out: {reason}")

    def drop(self, where: str, reason: str) -> None:
        """Count and name a segment that is faulty."""
        self.dropped[reason] += 1
        self.log.append(f"{where}: dropped: {reason}")

    def mend(self, where: str, how: str) -> None:
        """Count and name a segment that is not taken as it is."""
        self.mended[how] += 1
        self.log.append(f"{where}: {how}")

    def add(
        self,
        recording: Recording,
        start: Decimal,
        end: Decimal,
        words: Sequence[str],
        where: str,
        speaker: str = "",
        prefix: str = "",
    ) -> None:
        """Take in a segment, cut to the audio; one past it or with impossible times is dropped.

        :param speaker: where that is not the side; :param prefix: of the utterance's id, the side unless given.
        :param where: the segment's place, for the log.
        """
        limit = Decimal(recording.num_samples) / audio.SAMPLE_RATE
        first, last = centiseconds(start), min(centiseconds(end), int(limit * 100))
        key = utterance_id(prefix or recording.id, first, last)
        reason = ""
        if end > limit + _TOLERATED_OVERHANG:
            reason = f"ends more than {_TOLERATED_OVERHANG} s past the audio"
        elif not 0 <= start < end:
            reason = "does not end after its start"
        elif first >= int(limit * 100):
            reason = "begins past the audio"
        elif first >= last:
            reason = "shorter than 1/100 s"
        elif key in self.utterances:
            reason = "same times as another"
        if reason:
            self.drop(where, reason)
            return
        if centiseconds(end) > last:
            self.mend(where, "cut to the audio's end")
        speaker = speaker or recording.id
        before = self._last.get((speaker, recording.id), 0)
        if first < before:
            self.mended["overlaps one before it (kept)"] += 1
        self._last[speaker, recording.id] = max(last, before)
        self.utterances[key] = Utterance(key, speaker, recording.id, first / 100, last / 100, tuple(map(sys.intern, words)))
        self.recordings[recording.id] = recording
        self.calls.add(recording.file)

    def finish(self, known: Mapping[str, Sequence[int]]) -> tuple[DataDir, dict[str, Any]]:
        """The data directory, and what ``stats.json`` says of it beside its counts.

        :param known: the counts of the whole corpus, ``calls`` among them.
        :raises RecipeError: where it is empty, or more than 5 % of the utterances are lost by faults.
        """
        lost, taken = sum(self.dropped.values()), len(self.utterances)
        if not taken:
            raise RecipeError(
                f"{self.name}: no utterance: the corpus is empty (dropped: {dict(self.dropped)}, left out: "
                f"{dict(self.left_out)}); are these its transcripts?"
            )
        if taken < _MIN_SHARE * (taken + lost):
            raise RecipeError(
                f"{self.name}: {lost} of {taken + lost} utterances dropped ({dict(self.dropped)}); more than 5 % is too many: "
                f"do the transcripts belong to this audio? The first: {next(line for line in self.log if 'dropped' in line)}"
            )
        data = DataDir(self.recordings, self.utterances)
        if self.genders.keys() >= data.speakers.keys():  # Kaldi knows no table of some speakers' only
            data.genders = {speaker: self.genders[speaker] for speaker in data.speakers}
        about: dict[str, Any] = {
            "dropped": dict(sorted(self.dropped.items())),
            "left_out": dict(sorted(self.left_out.items())),
            "mended": dict(sorted(self.mended.items())),
            "differs": differences(known, data.stats()),
        }
        for difference in about["differs"]:
            print(f"warning: {self.name}: {difference}", file=sys.stderr)
        print(f"{self.name}: {data.stats() | about}", file=sys.stderr)
        return data, about

    def write(self, out: Path, known: Mapping[str, Sequence[int]], extra: Mapping[str, str] | None = None) -> None:
        """Write the data directory, with ``not_as_is.txt``: every segment dropped, left out, cut or mended, and why."""
        data, about = self.finish(known)
        data.write(out, about, {"not_as_is.txt": "".join(f"{line}\n" for line in self.log), **(extra or {})})


def differences(known: Mapping[str, Sequence[int]], found: Mapping[str, Any]) -> list[str]:
    """Say where a corpus that looks whole does not have the counts the field knows."""
    if found["calls"] < _FULL_SHARE * min(known["calls"]):
        return []
    return [
        f"{found[what]} {what.replace('_', ' ')} found, {' or '.join(map(str, counts))} known"
        for what, counts in known.items()
        if found[what] not in counts
    ]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")
