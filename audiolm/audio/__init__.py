"""Audio files in and out: find, read, stream, resample, mix, write.

The only package that knows audio files. libsndfile decodes and encodes, FFmpeg decodes what
libsndfile does not know (where it is there), soxr resamples.

Letters: C audio channels, N audio samples. Sample values are floats, full scale is -1 to 1.
"""

from audiolm.audio.convert import convert_channels, resample
from audiolm.audio.errors import AudioError, reason_of
from audiolm.audio.find import AUDIO_SUFFIXES, FolderContents, find_audio_files, search_folder
from audiolm.audio.formats.open import MAX_SAMPLE_RATE, MIN_SAMPLE_RATE
from audiolm.audio.read import AudioInfo, read_audio, read_info, stream_audio
from audiolm.audio.write import GrowingWav, Pcm, pcm_16, write_wav

__all__ = [
    "AUDIO_SUFFIXES",
    "MAX_SAMPLE_RATE",
    "MIN_SAMPLE_RATE",
    "AudioError",
    "AudioInfo",
    "FolderContents",
    "GrowingWav",
    "Pcm",
    "convert_channels",
    "find_audio_files",
    "pcm_16",
    "read_audio",
    "read_info",
    "reason_of",
    "resample",
    "search_folder",
    "stream_audio",
    "write_wav",
]
