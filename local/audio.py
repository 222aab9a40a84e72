"""One conversation side out of a call's audio file.

``python -m local.audio FILE CHANNEL`` writes channel CHANNEL (from 0) as WAV to standard output: the pipe of wav.scp.

NIST SPHERE is read with mu-law, A-law or PCM samples, plain or with embedded shorten (package desphere); every other
format (WAV, FLAC, ...) through libsndfile. The length is what the data hold: a header that promises more is an error.
"""

from __future__ import annotations

import argparse
import io
import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import desphere
import numpy as np
import soundfile

from local.cli import RecipeError, run

SAMPLE_RATE = 8000  # Hz: the telephone's
_SPHERE_MAGIC = b"NIST_1A"
_MAX_HEADER = 1 << 20  # bytes


class AudioInfo(NamedTuple):
    """Length, rate (Hz) and number of channels of a file."""

    num_samples: int  # of a channel
    sample_rate: int
    channels: int
    summed: bool = False  # the header counts the samples of all channels together, as Switchboard's release 1 does


def info(path: str | Path) -> AudioInfo:
    """Read what a file's header says, held against the size of its data (nothing is decoded).

    :raises RecipeError: where the file is absent, no audio, cut short, or not of 8 kHz.
    """
    path = Path(path)
    if _is_sphere(path):
        header, size = _sphere_header(path)
        num_samples = _sphere_samples(path, header, size)
        summed = num_samples != header.sample_count
        found = AudioInfo(num_samples, header.sample_rate, header.channel_count, summed)
    else:
        try:
            other = soundfile.info(str(path))
        except soundfile.LibsndfileError as error:
            raise RecipeError(f"{path}: no audio that SPHERE or libsndfile reads ({error.error_string})") from None
        found = AudioInfo(other.frames, other.samplerate, other.channels)
    if found.sample_rate != SAMPLE_RATE:
        raise RecipeError(f"{path}: expected {SAMPLE_RATE} Hz, found {found.sample_rate} Hz; resample it first")
    return found


def read_side(path: str | Path, channel: int) -> np.ndarray:
    """Decode one channel of a file.

    :param channel: from 0.
    :return: int16 samples at 8 kHz, shape ``(samples,)``.
    :raises RecipeError: as :func:`info`, and where the channel is missing.
    """
    found = info(path)
    if not 0 <= channel < found.channels:
        raise RecipeError(
            f"{path}: channel {channel + 1} is missing, the file has {found.channels}; "
            "expected both sides of the call in one file"
        )
    return _read_all(str(path))[:, channel]


@lru_cache(maxsize=2)  # both sides of a call are read one after the other
def _read_all(path: str) -> np.ndarray:
    if not _is_sphere(Path(path)):
        try:
            return soundfile.read(path, dtype="int16", always_2d=True)[0]
        except soundfile.LibsndfileError as error:
            raise RecipeError(f"{path}: damaged audio ({error.error_string}); copy it again") from None
    header, data = desphere.read_sphere(path)
    if "shorten" in header.sample_coding:
        wav = io.BytesIO()
        try:
            desphere.transcode(header, data, wav)
        except (desphere.DesphereError, IndexError, ValueError) as error:
            raise RecipeError(f"{path}: the shorten-compressed data are damaged ({error}); copy it again") from None
        wav.seek(0)
        samples = soundfile.read(wav, dtype="int16", always_2d=True)[0]
        if len(samples) < header.sample_count:
            raise RecipeError(
                f"{path}: cut short: the header promises {header.sample_count} samples, the data hold {len(samples)}"
            )
        return samples
    count = _sphere_samples(Path(path), header, len(data)) * header.channel_count
    coding = _coding(header)
    if coding in ("ulaw", "alaw"):
        table = np.frombuffer(_g711_table(coding), dtype="<i2")
        flat = table[np.frombuffer(data, dtype=np.uint8, count=count)]
    else:
        order = ">" if header.sample_byte_format == "10" else "<"
        flat = np.frombuffer(data, dtype=f"{order}i2", count=count).astype(np.int16)
    return flat.reshape(-1, header.channel_count)


@lru_cache
def _g711_table(coding: str) -> bytes:
    """The 256 linear values of G.711, by libsndfile: every byte once, read back as int16."""
    raw = io.BytesIO(bytes(range(256)))
    subtype = "ALAW" if coding == "alaw" else "ULAW"
    values, _ = soundfile.read(raw, dtype="int16", samplerate=SAMPLE_RATE, channels=1, format="RAW", subtype=subtype)
    return values.astype("<i2").tobytes()


def _is_sphere(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_SPHERE_MAGIC)) == _SPHERE_MAGIC
    except FileNotFoundError:
        raise RecipeError(f"{path}: no such audio file") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror}); expected an audio file") from None


def _sphere_header(path: Path) -> tuple[desphere.SphereHeader, int]:
    """The header and the number of bytes behind it."""
    with open(path, "rb") as file:
        head = file.read(1024)
        try:
            size = int(head.split(b"\n", 2)[1])
            if size > _MAX_HEADER:
                raise ValueError(f"a header of {size} bytes")
            header = desphere.SphereHeader.parse(head + file.read(max(0, size - len(head))))
        except (ValueError, IndexError, OverflowError, desphere.DesphereError) as error:
            raise RecipeError(f"{path}: damaged SPHERE header ({error})") from None
    coding, width = _coding(header), header.sample_n_bytes
    if (coding, width) not in {("ulaw", 1), ("alaw", 1), ("pcm", 2)}:
        raise RecipeError(
            f"{path}: sample_coding {header.sample_coding!r} of {width} byte(s): expected ulaw or alaw of 1, or pcm of 2"
        )
    return header, path.stat().st_size - header.header_size


def _sphere_samples(path: Path, header: desphere.SphereHeader, size: int) -> int:
    """Samples a channel. Release 1 of Switchboard counts both channels together: the data decide."""
    promised = header.sample_count
    if "shorten" in header.sample_coding:
        return promised  # the length of compressed data says nothing; reading them does
    held = size // (header.channel_count * header.sample_n_bytes)
    if held < promised and held * header.channel_count == header.sample_count:
        return held
    if held < promised:
        raise RecipeError(
            f"{path}: cut short: the header promises {promised} samples a channel, the data hold {held}; copy it again"
        )
    return promised


def _coding(header: desphere.SphereHeader) -> str:
    """ulaw, alaw, pcm, or what else the header says; embedded compression apart."""
    coding = header.sample_coding.split(",")[0].strip().lower()
    return "ulaw" if coding == "mu-law" else coding


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("channel", type=int, help="from 0")
    arguments = parser.parse_args()
    wav = io.BytesIO()
    soundfile.write(wav, read_side(arguments.file, arguments.channel), SAMPLE_RATE, format="WAV", subtype="PCM_16")
    sys.stdout.buffer.write(wav.getvalue())


if __name__ == "__main__":
    run(main)
