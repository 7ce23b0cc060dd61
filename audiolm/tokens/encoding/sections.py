"""Sections: a long recording is encoded in parts that need nothing of each other.

So a kill loses one section at most, several processes can share a recording, and its codes do not
depend on where a run was stopped. A section's codes are made from the samples of its own frames
and of a margin on either side, whose codes are dropped:

    samples       |-slack-|===left===|==========own==========|=right=|-slack-|
    frames       cut    start      begin                    end     stop

`left` and `right` are what the codec says that a frame depends on (`Codec.margins`). The slack is
for the resampler, whose filter reaches past where the samples were cut: it is resampled and not
encoded. Samples are cut at the recording's own rate, at a frame that begins on a whole sample, so
that the section's samples after resampling are those of the whole.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audiolm.files import hash64

if TYPE_CHECKING:
    # Not at run time: training from a store needs no codec, and EnCodec takes seconds to import.
    from audiolm.codec import Codec

# soxr's HQ filters reach over about 96 samples of the lower of the two rates, whichever it is.
_SLACK_SAMPLES = 128


class Section(NamedTuple):
    """Frames begin .. end of a recording, encoded as a part of start .. stop.

    first, last: of the samples to read, at the recording's own rate, counted from where the
    recording begins; the first of them is that of frame `cut`.
    """

    begin: int
    end: int
    start: int
    stop: int
    cut: int
    first: int
    last: int

    def key(self, audio_key: int) -> int:
        """What its codes are found by: whose audio, which frames, and what they are made from."""
        return hash64(f"{audio_key:016x} {' '.join(str(n) for n in self)}")


class Framing(NamedTuple):
    """How a codec frames recordings, and into how many frames they are cut.

    sample_rate, channels, hop_length, grid, left, right: the codec's.
    length: frames of a section, a multiple of `grid`.
    """

    sample_rate: int
    channels: int
    hop_length: int
    grid: int
    left: int
    right: int
    length: int

    @classmethod
    def of(cls, codec: Codec, section_seconds: float) -> Framing:
        """Raises ValueError for sections of no length."""
        if not 0 < section_seconds < math.inf:
            raise ValueError(f"section_seconds {section_seconds} must be finite and positive")
        grid, left, right = codec.margins
        length = max(1, round(section_seconds * codec.frame_rate / grid)) * grid
        return cls(codec.sample_rate, codec.channels, codec.hop_length, grid, left, right, length)

    def num_samples(self, samples: int, rate: int) -> int:
        """Samples at the codec's rate of a recording of so many at `rate` Hz (as `resample`)."""
        return (2 * samples * self.sample_rate + rate) // (2 * rate)

    def num_frames(self, samples: NDArray[np.int64], rates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Frames of recordings of so many samples each at their own rates."""
        resampled = (2 * samples * self.sample_rate + rates) // (2 * rates)
        frames: NDArray[np.int64] = -(-resampled // self.hop_length)
        return frames

    def num_sections(self, frames: int) -> int:
        """Into how many sections a recording of so many frames is cut; 1: it is encoded whole."""
        return max(1, -(-frames // self.length))

    def section(self, number: int, samples: int, rate: int) -> Section:
        """A section of a recording of so many samples at `rate` Hz."""
        frames = -(-self.num_samples(samples, rate) // self.hop_length)
        reach = _SLACK_SAMPLES * self.sample_rate / min(rate, self.sample_rate)
        slack = math.ceil(reach / self.hop_length)
        begin = number * self.length
        end = min(begin + self.length, frames)
        start = max(0, begin - -(-self.left // self.grid) * self.grid)
        stop = min(end + self.right, frames)
        # A frame takes hop * rate / sample_rate samples of the file: this many take whole ones.
        whole = self.sample_rate // math.gcd(self.sample_rate, self.hop_length * rate)
        cut = max(0, start - slack) // whole * whole
        first = cut * self.hop_length * rate // self.sample_rate
        last = -(-(stop + slack) * self.hop_length * rate // self.sample_rate)
        return Section(begin, end, start, stop, cut, first, min(last, samples))
