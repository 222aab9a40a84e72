"""From clean speech to a telephone line: band, level, tilt and noise; sounds that are no speech; the SPHERE header."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

RATE = 8000
_LOW, _HIGH = 300.0, 3400.0  # Hz, the band of a line
_EDGE = 80.0  # Hz over which it falls off
_LEVEL = 0.08  # root mean square of speech, of full scale


def resample(samples: np.ndarray, rate: int) -> np.ndarray:
    """Bring int16 samples at ``rate`` to 8 kHz by cutting their spectrum; float64, of full scale 1."""
    length = round(len(samples) * RATE / rate)
    if length < 2:
        return np.zeros(length)
    spectrum = np.fft.rfft(samples / 32768.0)[: length // 2 + 1]
    return np.fft.irfft(spectrum, length) * length / len(samples)


def channel(signal: np.ndarray, rng: np.random.Generator, noisy: bool) -> np.ndarray:
    """A side's line: the telephone band with a tilt, a level of its own, noise and a little hum.

    :param noisy: a worse line, 12 to 22 dB of speech over noise instead of 20 to 35.
    """
    size = 1 << (len(signal) - 1).bit_length()  # a length that transforms fast
    frequencies = np.fft.rfftfreq(size, 1 / RATE)
    tilt = rng.uniform(-4, 4) / 20 * np.log10(np.maximum(frequencies, 50) / 1000)
    band = 1 / (1 + np.exp((_LOW - frequencies) / (_EDGE / 4))) / (1 + np.exp((frequencies - _HIGH) / (_EDGE / 2)))
    speech = np.fft.irfft(np.fft.rfft(signal, size) * band * 10**tilt)[: len(signal)]
    active = np.abs(signal) > 1e-3
    power = np.sqrt(np.mean(speech[active] ** 2)) if active.any() else 1.0
    level = _LEVEL * 10 ** (rng.uniform(-8, 4) / 20)
    ratio = rng.uniform(12, 22) if noisy else rng.uniform(20, 35)
    noise = np.fft.rfft(rng.standard_normal(size)) * band / np.sqrt(1 + frequencies / 800)
    noise = np.fft.irfft(noise)[: len(signal)]
    noise *= level * 10 ** (-ratio / 20) / np.sqrt(np.mean(noise**2))
    hum = 0.02 * level * np.sin(2 * np.pi * 60 * np.arange(len(signal)) / RATE)
    return np.clip(speech * level / power + noise + hum, -0.99, 0.99)


def _burst(seconds: float, rng: np.random.Generator) -> np.ndarray:
    count = round(seconds * RATE)
    return rng.standard_normal(count) * np.hanning(count)


def _laughter(rng: np.random.Generator) -> np.ndarray:
    """A few voiced puffs, each weaker and lower than the one before."""
    pitch = rng.uniform(120, 260)
    parts = []
    for puff in range(int(rng.integers(3, 6))):
        count = round(0.16 * RATE)
        time = np.arange(count) / RATE
        voice = sum(np.sin(2 * np.pi * pitch * (0.97**puff) * k * time) / k for k in range(1, 9))
        parts += [(0.12 * voice + 0.05 * rng.standard_normal(count)) * np.hanning(count) * 0.85**puff, np.zeros(count // 3)]
    return np.concatenate(parts)


SOUNDS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "[laughter]": _laughter,
    "[noise]": lambda rng: 0.1 * _burst(rng.uniform(0.15, 0.5), rng),
    "[vocalized-noise]": lambda rng: 0.04 * np.convolve(_burst(rng.uniform(0.3, 0.6), rng), np.ones(4) / 2, mode="same"),
}


def sphere_header(name: str, samples: int) -> bytes:
    """1024 bytes of NIST SPHERE header for two channels of mu-law, counted a channel as in release 2."""
    fields = [
        f"conversation_id -s{len(name)} {name}",
        "database_id -s18 SYNTHETIC_EMBEDDED",
        "channel_count -i 2",
        f"sample_rate -i {RATE}",
        "sample_n_bytes -i 1",
        "sample_byte_format -s1 1",
        f"sample_count -i {samples}",
        "sample_coding -s4 ulaw",
        "channels_interleaved -s4 TRUE",
        "end_head",
    ]
    return "\n".join(["NIST_1A", "   1024", *fields, ""]).encode().ljust(1024)
