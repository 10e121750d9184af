"""Show the frequencies of a sound over time, by a Fourier transform as a matrix product."""

import numpy as np
import numpy.typing as npt
from shared import coloured, options, write_png

import ubridge as ub
from uhal import Api

RATE, WINDOW = 8000, 512


def sound(seconds: float) -> npt.NDArray[np.float32]:
    time = np.arange(int(seconds * RATE)) / RATE
    rising = np.sin(2 * np.pi * (200 * time + 1500 * time**2 / seconds))
    trill = 0.7 * np.sin(2 * np.pi * 2600 * time + 40 * np.sin(2 * np.pi * 3 * time))
    noise = 0.02 * np.random.default_rng(2).standard_normal(time.size)
    return np.asarray(rising + trill * (time > seconds / 3) + noise, np.float32)


def main() -> None:
    chosen = options(__doc__, "spectrogram")
    device = Api.quick_init(backend=chosen.backend)
    signal = sound(3.0)
    frames, bins = chosen.size, WINDOW // 2

    starts = np.linspace(0, signal.size - WINDOW, frames).astype(np.int64)
    samples = ub.array(starts[:, None] + np.arange(WINDOW))
    window = ub.array(np.hanning(WINDOW).astype(np.float32))
    pieces = ub.take(ub.array(signal), samples) * window

    turns = 2 * np.pi * np.outer(np.arange(WINDOW), np.arange(bins)) / WINDOW
    real = pieces @ ub.array(np.cos(turns).astype(np.float32))
    imaginary = pieces @ ub.array(np.sin(turns).astype(np.float32))
    loudness = ub.log(ub.square(real) + ub.square(imaginary) + 1e-3)

    shown = loudness.to_numpy().T[::-1]
    expected = np.fft.rfft(signal[starts[:, None] + np.arange(WINDOW)] * np.hanning(WINDOW))
    reference = np.log(np.abs(expected[:, :bins].T[::-1]) ** 2 + 1e-3)
    error = np.abs(np.exp(shown) - np.exp(reference)).max() / np.exp(reference).max()
    assert error < 1e-5, error
    scaled = (shown - shown.min()) / (shown.max() - shown.min())
    write_png(chosen.output, coloured(scaled))
    print(f"{frames} spectra on {device.backend}, within {error:.0e} of numpy's")


if __name__ == "__main__":
    main()
