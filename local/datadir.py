"""Kaldi data directories: read, held against Kaldi's own rules, written with lhotse manifests of the same content."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lhotse import Recording as LhotseRecording
from lhotse import RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.audio import AudioSource
from lhotse.qa import validate_recordings_and_supervisions

from local.audio import SAMPLE_RATE
from local.cli import RecipeError
from local.files import atomic_dir

_FORBIDDEN_WORDS = {"<s>", "</s>", "#0", "<eps>"}


@dataclass(frozen=True)
class Recording:
    """One conversation side: a channel (from 0) of a call's audio file."""

    id: str
    path: Path
    channel: int
    file: str  # the call's name in stm and ctm: sw02001, en_4156
    side: str  # A or B
    num_samples: int

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.num_samples / SAMPLE_RATE


@dataclass(frozen=True)
class Utterance:
    """A stretch of a recording, from ``start`` to ``end`` seconds, and its words."""

    id: str
    speaker: str
    recording: str
    start: float
    end: float
    words: tuple[str, ...]

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.start


@dataclass
class DataDir:
    """The utterances of a set and the recordings they lie in, each by id and in C order."""

    recordings: dict[str, Recording]
    utterances: dict[str, Utterance]
    genders: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.recordings = dict(sorted(self.recordings.items()))
        self.utterances = dict(sorted(self.utterances.items()))
        self.genders = dict(sorted(self.genders.items()))

    def _grouped(self, by: Callable[[Utterance], str]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for utterance in self.utterances.values():
            groups.setdefault(by(utterance), []).append(utterance.id)
        return dict(sorted(groups.items()))

    @property
    def speakers(self) -> dict[str, list[str]]:
        """The utterance ids of each speaker."""
        return self._grouped(lambda utterance: utterance.speaker)

    @property
    def sides(self) -> dict[str, list[str]]:
        """The utterance ids of each recording, a conversation side."""
        return self._grouped(lambda utterance: utterance.recording)

    @property
    def utt2side(self) -> dict[str, str]:
        """The recording of each utterance."""
        return {utterance.id: utterance.recording for utterance in self.utterances.values()}

    @property
    def utt2spk(self) -> dict[str, str]:
        """The speaker of each utterance."""
        return {utterance.id: utterance.speaker for utterance in self.utterances.values()}

    def subset(self, ids: Iterable[str]) -> DataDir:
        """The utterances ``ids`` and what belongs to them.

        :raises RecipeError: for an id that is not there.
        """
        wanted = set(ids)
        if unknown := sorted(wanted - set(self.utterances)):
            raise RecipeError(f"no utterance {unknown[0]} in the data directory ({len(unknown)} unknown ids)")
        utterances = {key: utterance for key, utterance in self.utterances.items() if key in wanted}
        recordings = {utterance.recording for utterance in utterances.values()}
        speakers = {utterance.speaker for utterance in utterances.values()}
        return DataDir(
            {key: recording for key, recording in self.recordings.items() if key in recordings},
            utterances,
            {key: gender for key, gender in self.genders.items() if key in speakers},
        )

    def split(self, jobs: int) -> list[DataDir]:
        """Share the speakers out to ``jobs`` parts of about equal length; never a speaker over two parts.

        :raises RecipeError: where there are fewer speakers than jobs.
        """
        return self._split(self.speakers, "speaker", jobs)

    def split_sides(self, jobs: int) -> list[DataDir]:
        """Share the sides out in the same way; never a side over two parts, though two persons may speak on it.

        :raises RecipeError: where there are fewer sides than jobs.
        """
        return self._split(self.sides, "side", jobs)

    def _split(self, groups: dict[str, list[str]], what: str, jobs: int) -> list[DataDir]:
        if jobs > len(groups):
            raise RecipeError(f"{jobs} jobs for {len(groups)} {what}s: a {what} is never split; take fewer jobs")
        seconds = {name: sum(self.utterances[key].duration for key in ids) for name, ids in groups.items()}
        shares: list[list[str]] = [[] for _ in range(jobs)]
        load = [0.0] * jobs
        for name in sorted(groups, key=lambda name: (-seconds[name], name)):
            job = load.index(min(load))
            shares[job] += groups[name]
            load[job] += seconds[name]
        return [self.subset(share) for share in shares]

    def validate(self) -> None:
        """Hold the set against Kaldi's rules.

        :raises RecipeError: naming the utterance or recording and the rule it breaks.
        """
        if not self.utterances:
            raise RecipeError("the data directory has no utterances")
        for key, recording in self.recordings.items():
            if key != recording.id or _breaks(key):
                raise RecipeError(f"recording {key!r}: the id must be one printable word")
            if not str(recording.path).isprintable():
                raise RecipeError(
                    f"recording {key}: {str(recording.path)!r}: a path may not hold control characters; rename it"
                )
            if recording.side not in ("A", "B"):
                raise RecipeError(f"recording {key}: expected side A or B, found {recording.side!r}")
        for key, utterance in self.utterances.items():
            if key != utterance.id or _breaks(key):
                raise RecipeError(f"utterance {key!r}: the id must be one printable word")
            if _breaks(utterance.speaker):
                raise RecipeError(f"utterance {key}: the speaker's id {utterance.speaker!r} must be one printable word")
            if not key.startswith(utterance.speaker):
                raise RecipeError(f"utterance {key}: the speaker's id {utterance.speaker} must be its prefix")
            if utterance.recording not in self.recordings:
                raise RecipeError(f"utterance {key}: no recording {utterance.recording}")
            if not 0 <= utterance.start < utterance.end:
                raise RecipeError(f"utterance {key}: expected 0 <= start < end, found {utterance.start}, {utterance.end}")
            if utterance.end > self.recordings[utterance.recording].duration + 0.005:
                raise RecipeError(
                    f"utterance {key}: ends at {utterance.end} s, its recording at "
                    f"{self.recordings[utterance.recording].duration:.3f} s"
                )
            if bad := [word for word in utterance.words if word in _FORBIDDEN_WORDS or _breaks(word)]:
                raise RecipeError(f"utterance {key}: the word {bad[0]!r} may not stand in a text")
        by_speaker = sorted(self.utterances.values(), key=lambda utterance: (utterance.speaker, utterance.id))
        if [utterance.id for utterance in by_speaker] != list(self.utterances):
            raise RecipeError("sorted by speaker, the utterances are in another order than sorted by id")
        if self.genders and self.genders.keys() != self.speakers.keys():
            odd = min(self.genders.keys() ^ self.speakers.keys())
            raise RecipeError(
                f"genders must be given of all speakers and no one else, or not at all; {odd} is the first odd one"
            )
        if bad := [speaker for speaker, gender in self.genders.items() if gender not in ("m", "f")]:
            raise RecipeError(f"speaker {bad[0]}: expected gender m or f, found {self.genders[bad[0]]!r}")
        if unused := sorted(set(self.recordings) - {utterance.recording for utterance in self.utterances.values()}):
            raise RecipeError(f"recording {unused[0]} has no utterance")

    def stats(self) -> dict[str, Any]:
        """Counts and hours."""
        utterances = self.utterances.values()
        return {
            "calls": len({recording.file for recording in self.recordings.values()}),
            "sides": len(self.recordings),
            "speakers": len(self.speakers),
            "utterances": len(utterances),
            "words": sum(len(utterance.words) for utterance in utterances),
            "hours": round(sum(utterance.duration for utterance in utterances) / 3600, 4),
        }

    def write(
        self,
        path: str | Path,
        about: Mapping[str, Any] | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Validate the set and write it to the folder ``path``, whole or not at all.

        :param about: what ``stats.json`` says beside :meth:`stats`: utterances left out by reason, and the like.
        :param extra: further files, name to content (``stm``, ``glm``).
        """
        self.validate()
        recordings, utterances = self.recordings.values(), self.utterances.values()
        files = {
            "wav.scp": (f"{r.id} python -m local.audio {shlex.quote(str(r.path))} {r.channel} |" for r in recordings),
            "reco2file_and_channel": (f"{r.id} {r.file} {r.side}" for r in recordings),
            "reco2dur": (f"{r.id} {r.duration:.6f}" for r in recordings),
            "segments": (f"{u.id} {u.recording} {u.start:.2f} {u.end:.2f}" for u in utterances),
            "text": (" ".join((u.id, *u.words)) for u in utterances),
            "utt2spk": (f"{u.id} {u.speaker}" for u in utterances),
            "spk2utt": (" ".join((speaker, *ids)) for speaker, ids in self.speakers.items()),
        }
        if self.genders:
            files["spk2gender"] = (f"{speaker} {gender}" for speaker, gender in self.genders.items())
        with atomic_dir(path) as folder:
            for name, lines in files.items():
                (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            for name, content in (extra or {}).items():
                (folder / name).write_text(content, encoding="utf-8")
            (folder / "stats.json").write_text(json.dumps(self.stats() | dict(about or {}), indent=2) + "\n", encoding="utf-8")
            recording_set, supervision_set = self.manifests()
            recording_set.to_file(folder / "recordings.jsonl.gz")
            supervision_set.to_file(folder / "supervisions.jsonl.gz")

    def manifests(self) -> tuple[RecordingSet, SupervisionSet]:
        """The same content for lhotse: a recording is a whole call, a supervision names its channel. Validated."""
        calls: dict[str, list[Recording]] = {}
        for recording in self.recordings.values():
            calls.setdefault(recording.file, []).append(recording)
        recording_set = RecordingSet.from_recordings(
            LhotseRecording(
                id=call,
                sources=[AudioSource("file", sorted({side.channel for side in sides}), str(sides[0].path))],
                sampling_rate=SAMPLE_RATE,
                num_samples=sides[0].num_samples,
                duration=sides[0].duration,
                channel_ids=sorted({side.channel for side in sides}),
            )
            for call, sides in calls.items()
        )
        supervision_set = SupervisionSet.from_segments(
            SupervisionSegment(
                id=utterance.id,
                recording_id=self.recordings[utterance.recording].file,
                start=utterance.start,
                duration=round(utterance.duration, 2),
                channel=self.recordings[utterance.recording].channel,
                text=" ".join(utterance.words),
                speaker=utterance.speaker,
                gender=self.genders.get(utterance.speaker),
            )
            for utterance in self.utterances.values()
        )
        validate_recordings_and_supervisions(recording_set, supervision_set)
        return recording_set, supervision_set

    @staticmethod
    def from_manifests(recordings: RecordingSet, supervisions: SupervisionSet) -> DataDir:
        """Take up what :meth:`manifests` gives: channels 0 and 1 of a call are its sides A and B.

        :raises RecipeError: for another rate or channel, a recording not in one file, a supervision without a recording.
        """
        calls = {call.id: call for call in recordings}  # a manifest read from a file is lazy
        sides: dict[str, Recording] = {}
        utterances: dict[str, Utterance] = {}
        for s in supervisions:
            if s.recording_id not in calls:
                raise RecipeError(f"supervision {s.id}: no recording {s.recording_id} in the manifest")
            call, channel = calls[s.recording_id], s.channel
            if call.sampling_rate != SAMPLE_RATE or channel not in call.channel_ids or channel not in (0, 1):
                raise RecipeError(
                    f"supervision {s.id}: expected channel 0 or 1 of a call of {SAMPLE_RATE} Hz, found channel {channel} of "
                    f"{call.channel_ids} at {call.sampling_rate} Hz"
                )
            if len(call.sources) != 1 or call.sources[0].type != "file":
                raise RecipeError(f"recording {call.id}: expected both channels in one file")
            side = "AB"[channel]
            key = f"{call.id}-{side}"
            sides[key] = Recording(key, Path(call.sources[0].source), channel, call.id, side, call.num_samples)
            words = tuple((s.text or "").split())
            utterances[s.id] = Utterance(s.id, s.speaker or key, key, s.start, round(s.start + s.duration, 2), words)
        genders = {s.speaker: s.gender for s in supervisions if s.gender}
        return DataDir(sides, utterances, genders)

    @staticmethod
    def read(path: str | Path) -> DataDir:
        """Read a folder that :meth:`write` has made.

        :raises RecipeError: for a missing file, a line that cannot be read, an id given twice or unknown.
        """
        path = Path(path)
        wav, segments, texts = _table(path / "wav.scp"), _table(path / "segments"), _table(path / "text")
        names, durations = _table(path / "reco2file_and_channel"), _table(path / "reco2dur")
        speakers = _table(path / "utt2spk")
        recordings, utterances = {}, {}
        try:
            for key, rest in wav.items():
                audio_path, channel = shlex.split(rest.rstrip("| "))[-2:]
                file, side = names[key].split()
                num_samples = round(float(durations[key]) * SAMPLE_RATE)
                recordings[key] = Recording(key, Path(audio_path), int(channel), file, side, num_samples)
            for key, rest in segments.items():
                recording, start, end = rest.split()
                words = tuple(texts[key].split())
                utterances[key] = Utterance(key, speakers[key], recording, float(start), float(end), words)
        except (KeyError, ValueError, OverflowError) as error:
            raise RecipeError(f"{path}: damaged data directory at {key} ({error!r}); make it again") from None
        genders = _table(path / "spk2gender") if (path / "spk2gender").exists() else {}
        for name, table in (("text", texts), ("utt2spk", speakers)):
            if odd := sorted(table.keys() ^ segments.keys()):
                raise RecipeError(
                    f"{path}: {name} and segments are of different utterances, {odd[0]} is the first odd one; make it again"
                )
        data = DataDir(recordings, utterances, genders)
        try:
            data.validate()
        except RecipeError as error:
            raise RecipeError(f"{path}: {error}; make it again") from None
        return data


def _table(path: Path) -> dict[str, str]:
    """Lines ``key rest`` as a mapping; a key given twice is an error."""
    if not path.exists():
        raise RecipeError(f"{path}: no such file; run the stage 'data'")
    table: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}); make it again") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror}); make it again") from None
    for number, line in enumerate(lines, 1):
        key, _, rest = line.partition(" ")
        if not key or key in table:
            raise RecipeError(f"{path}:{number}: {'the key ' + key + ' stands there twice' if key else 'empty line'}")
        table[key] = rest
    return table


def _breaks(word: str) -> bool:
    """Whether a word would break a line of a Kaldi table."""
    return not word or not word.isprintable() or any(character.isspace() for character in word)
