"""A folder of hostile audio files, made by code, and what each of them must give.

`build(folder)` writes them and returns a `Case` for each. No two of the files that must be served
hold the same samples, so none of them is another's duplicate. Cases of FFmpeg's formats are there
where PyAV is; it encodes them.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from audiolm.audio.formats.pyav import has_pyav

RATE = 16000
LENGTH = RATE  # samples of most files: a second


@dataclass(frozen=True)
class Case:
    """One file. It is served where ``samples`` is given, else skipped for ``reason``."""

    path: Path
    """Relative to the folder."""
    samples: NDArray[np.float32] | None = None
    """(C, N), at the file's own rate."""
    rate: int = RATE
    """Hz."""
    tolerance: float = 0.0
    """Largest difference from ``samples``; 0: the same to the bit."""
    padding: int = 0
    """Samples that may follow behind."""
    reason: str = ""
    """Regular expression that is found in the reason for which the file is skipped."""
    trait: str = ""
    """Of served files whose content is odd: silent, out of phase, unscaled, clipped, offset
    or short."""
    listed: bool = True
    """Whether a search of the folder lists it."""

    @property
    def served(self) -> bool:
        return self.samples is not None


def build(folder: Path) -> list[Case]:
    """Write the files below ``folder``; the same samples on every machine."""
    pack = _Pack(folder)
    for part in (
        _good,
        _formats,
        _contents,
        _names,
        _not_files,
        _cut,
        _wav_headers,
        _other_headers,
        _mp3,
        _not_audio,
    ):
        part(pack)
    if has_pyav():
        for part in (_containers, _hostile_containers):
            part(pack)
    return pack.cases


class _Pack:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases: list[Case] = []

    def at(self, name: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def serve(self, name: str, samples: NDArray[np.float32], rate: int = RATE, **more: Any) -> None:
        self.cases.append(Case(Path(name), np.atleast_2d(samples), rate, **more))

    def refuse(self, name: str, reason: str, **more: Any) -> None:
        self.cases.append(Case(Path(name), reason=reason, **more))


def noise(name: str, channels: int = 1, length: int = LENGTH, bits: int = 16) -> NDArray[Any]:
    """(C, N) float64 on the grid of ``bits`` bits, so that integer files hold it exactly; no two
    names give the same."""
    generator = np.random.default_rng(zlib.crc32(name.encode(errors="surrogateescape")))
    steps = 2 ** (bits - 1)
    return generator.integers(-steps // 2, steps // 2, (channels, length)) / steps


def tone(name: str, channels: int = 1, length: int = LENGTH, rate: int = RATE) -> NDArray[Any]:
    """(C, N) float64: a chord that a lossy encoder keeps well; no two names give the same."""
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    time = np.arange(length) / rate
    waves = [np.sin(2 * np.pi * f * time) for f in generator.uniform(200, 1200, (channels, 3)).flat]
    chord: NDArray[Any] = np.reshape(waves, (channels, 3, length)).mean(axis=1)
    # A soft begin and end, which no encoder smears.
    return 0.5 * chord * np.minimum(1, np.minimum(time, time[::-1]) / 0.05)


def store(path: Path, samples: NDArray[Any], rate: int = RATE, **options: Any) -> bytes:
    """Write ``samples`` (C, N) by libsndfile; returns the bytes of the file."""
    with path.open("w+b") as file:  # an open file: soundfile takes no name of odd bytes
        options.setdefault("format", path.suffix[1:].upper())
        soundfile.write(file, samples.T, rate, **options)
    return path.read_bytes()


def wav(
    samples: NDArray[Any],
    rate: int = RATE,
    *,
    tag: int = 1,
    channels: int | None = None,
    align: int | None = None,
    bits: int = 16,
    format_bytes: int = 16,
    riff_bytes: int | None = None,
    data_bytes: int | None = None,
    before: bytes = b"",
    after: bytes = b"",
) -> bytes:
    """A WAV of 16 bits with 44 bytes of header, in which anything can be said.

    before: chunks between the format and the data; after: bytes behind the data.
    """
    body = np.rint(samples.T * 32768).astype("<i2").tobytes()
    said = len(samples) if channels is None else channels
    align = 2 * said if align is None else align
    fields = (tag, said, rate, rate * align & 0xFFFFFFFF, align & 0xFFFF, bits)
    chunks = struct.pack("<4sIHHIIHH", b"fmt ", format_bytes, *fields) + before
    chunks += struct.pack("<4sI", b"data", len(body) if data_bytes is None else data_bytes) + body
    size = 4 + len(chunks) + len(after) if riff_bytes is None else riff_bytes
    return struct.pack("<4sI4s", b"RIFF", size, b"WAVE") + chunks + after


def chunk(name: bytes, body: bytes, order: str = "<") -> bytes:
    return name + struct.pack(order + "I", len(body)) + body + bytes(len(body) % 2)


def _floats(samples: NDArray[Any]) -> NDArray[np.float32]:
    return samples.astype(np.float32)


def _stored(
    pack: _Pack, name: str, samples: NDArray[Any], rate: int = RATE, **options: Any
) -> Path:
    path = pack.at(name)
    store(path, samples, rate, **options)
    return path


# ---- What is served


def _good(pack: _Pack) -> None:
    """Plain files, to lie beside the hostile ones."""
    for name, channels, bits, options in (
        ("good/a.wav", 1, 16, {}),
        ("good/b.wav", 2, 24, {"subtype": "PCM_24"}),
        ("good/c.flac", 2, 16, {}),
        ("good/deep/er/d.aiff", 1, 16, {}),
        ("good/deep/e.FLAC", 1, 16, {}),
    ):
        samples = noise(name, channels, bits=bits)
        _stored(pack, name, samples, **options)
        pack.serve(name, _floats(samples))


def _formats(pack: _Pack) -> None:
    for name, form, subtype, bits in (
        ("formats/pcm24.wav", "WAV", "PCM_24", 24),
        ("formats/pcm32.wav", "WAV", "PCM_32", 24),
        ("formats/float32.wav", "WAV", "FLOAT", 24),
        ("formats/float64.wav", "WAV", "DOUBLE", 24),
        ("formats/extensible.wav", "WAVEX", "PCM_16", 16),
        ("formats/extensible_float.wav", "WAVEX", "FLOAT", 24),
        ("formats/a.rf64", "RF64", "PCM_16", 16),
        ("formats/a.w64", "W64", "PCM_24", 24),
        ("formats/a.au", "AU", "PCM_16", 16),
        ("formats/float.snd", "AU", "FLOAT", 24),
        ("formats/a.caf", "CAF", "PCM_16", 16),
        ("formats/alac.caf", "CAF", "ALAC_16", 16),
        ("formats/float.aifc", "AIFF", "FLOAT", 24),
        ("formats/24.flac", "FLAC", "PCM_24", 24),
    ):
        samples = noise(name, bits=bits)
        _stored(pack, name, samples, format=form, subtype=subtype)
        pack.serve(name, _floats(samples))
    for name, form, subtype, tolerance, padding in (
        ("formats/ulaw.wav", "WAV", "ULAW", 0.02, 0),
        ("formats/alaw.wav", "WAV", "ALAW", 0.02, 0),
        ("formats/u8.wav", "WAV", "PCM_U8", 0.01, 0),
        ("formats/ima.wav", "WAV", "IMA_ADPCM", 0.05, 2048),
        ("formats/ms.wav", "WAV", "MS_ADPCM", 0.05, 2048),
        ("formats/a.ogg", "OGG", "VORBIS", 0.1, 0),
        ("formats/a.opus", "OGG", "OPUS", 0.1, 0),
        ("formats/a.mp3", "MP3", "MPEG_LAYER_III", 0.1, 0),
    ):
        samples = tone(name)
        _stored(pack, name, samples, format=form, subtype=subtype)
        pack.serve(name, _floats(samples), tolerance=tolerance, padding=padding)
    for name, channels, rate in (
        ("formats/8_channels.wav", 8, RATE),
        ("formats/8_channels.flac", 8, RATE),
        ("formats/192_khz.wav", 1, 192000),
        ("formats/4_khz.wav", 1, 4000),
    ):
        samples = noise(name, channels, rate)
        _stored(pack, name, samples, rate)
        pack.serve(name, _floats(samples), rate)


def _contents(pack: _Pack) -> None:
    still = np.zeros((1, LENGTH))
    loud = np.sign(noise("contents/clipped.wav")) * (1 - 2.0**-15)
    for name, samples, trait in (
        ("contents/silent.wav", still, "silent"),
        ("contents/silent.flac", np.zeros((2, LENGTH)), "silent"),
        ("contents/offset.wav", still + 0.5, "offset"),
        ("contents/clipped.wav", loud, "clipped"),
        ("contents/one_sample.wav", np.full((1, 1), 0.25), "short"),
        ("contents/one_sample.flac", np.full((1, 1), -0.25), "short"),
        ("contents/ten_samples.wav", noise("contents/ten_samples.wav", length=10), "short"),
    ):
        _stored(pack, name, samples)
        pack.serve(name, _floats(samples), trait=trait)
    first, second = noise("contents/inverse.wav"), noise("contents/inverse.flac")
    for name, samples in (
        ("contents/inverse.wav", np.concatenate([first, -first])),
        ("contents/inverse.flac", np.concatenate([second, -second, second, -second])),
    ):
        _stored(pack, name, samples)
        pack.serve(name, _floats(samples), trait="out of phase")
    beyond = 3 * noise("contents/beyond_full_scale.wav", bits=20)
    _stored(pack, "contents/beyond_full_scale.wav", beyond, subtype="FLOAT")
    pack.serve("contents/beyond_full_scale.wav", _floats(beyond), trait="clipped")
    for name, bits in (("contents/integers_16.wav", 16), ("contents/integers_24.wav", 24)):
        integers = noise(name, bits=bits) * 2.0 ** (bits - 1)
        _stored(pack, name, integers, subtype="FLOAT")
        pack.serve(name, _floats(integers), trait="unscaled")
    for name, value, subtype in (
        ("contents/nan.wav", np.nan, "FLOAT"),
        ("contents/inf.wav", np.inf, "FLOAT"),
        ("contents/minus_inf.wav", -np.inf, "DOUBLE"),
        ("contents/inf_as_float32.wav", 1e300, "DOUBLE"),
        ("contents/nan.aifc", np.nan, "FLOAT"),
        ("contents/nan.au", np.nan, "DOUBLE"),
    ):
        samples = noise(name, 2)
        samples[1, 8000] = value
        form = "AIFF" if name.endswith("aifc") else None
        _stored(pack, name, samples, subtype=subtype, **({"format": form} if form else {}))
        pack.refuse(name, r"^not finite: 1 NaN or Inf samples from 0\.500 s on$")


def _names(pack: _Pack) -> None:
    for name in (
        "names/é ü 音 🎵.wav",
        "names/e\u0301 decomposed.wav",
        "names/  spaces  .wav",
        "names/-i.wav",
        "names/--help.wav",
        "names/new\nline.wav",
        "names/tab\tand\rreturn.wav",
        "names/quotes'\"`$(x);&|.wav",
        "names/%03d.wav",
        "names/concat:x.wav",
        "names/[a]{b}*?.wav",
        "names/two.dots.mp3.wav",
        "names/UPPER.WAV",
        "names/" + 245 * "n" + ".wav",
        "names/undecodable \udcff\udcfe.wav",
    ):
        samples = noise(name)
        try:
            pack.at(name).write_bytes(wav(samples))
        except (OSError, UnicodeError):  # not on this file system
            continue
        pack.serve(name, _floats(samples))


# ---- What is not a file, or not to be read


def _not_files(pack: _Pack) -> None:
    samples = noise("folder.wav/inside.wav")
    pack.at("folder.wav/inside.wav").write_bytes(wav(samples))
    pack.serve("folder.wav/inside.wav", _floats(samples))
    pack.refuse("folder.wav", "^not readable: not a regular file$", listed=False)
    pack.refuse("missing.wav", "^not readable: No such file", listed=False)
    hidden = pack.at(".hidden.wav")
    hidden.write_bytes(wav(noise("hidden")))
    pack.at("links/x").write_bytes(b"")
    links = pack.folder / "links"
    for name, target, reason in (
        ("dangling.wav", "nothing", "^not readable: No such file"),
        ("circle.wav", "circle.wav", "^not readable: (Too many levels|Symbolic link loop)"),
    ):
        (links / name).symlink_to(target)
        pack.refuse(f"links/{name}", reason, listed=False)
    (links / "loop").symlink_to(pack.folder)
    (links / "itself").symlink_to(links)
    if hasattr(os, "mkfifo"):
        os.mkfifo(pack.at("pipe.wav"))
        pack.refuse("pipe.wav", "^not readable: not a regular file$", listed=False)
        (links / "zero.wav").symlink_to("/dev/zero")
        pack.refuse("links/zero.wav", "^not readable: not a regular file$", listed=False)
    if os.name == "posix" and os.geteuid() != 0:  # root reads everything
        locked = pack.at("locked.wav")
        locked.write_bytes(wav(noise("locked.wav")))
        locked.chmod(0)
        pack.refuse("locked.wav", "^not readable: Permission denied$")


# ---- Cut


def _cut(pack: _Pack) -> None:
    """Cut inside the magic, each field of the header, its first samples, the middle, the end."""
    reason = r"^(empty|not audio|damaged|truncated)"
    for suffix, places, options in (
        ("wav", (1, 2, 4, 6, 8, 10, 12, 14, 18, 20, 22, 30, 36, 38, 40, 42, 44, 45, 46, 47), {}),
        ("flac", (1, 3, 4, 6, 8, 20, 41, 42, 44, 60, 86, 90, 100, 1000), {}),
        ("aiff", (2, 6, 10, 14, 20, 30, 38, 42, 46, 50, 54, 55), {}),
        ("ogg", (2, 5, 20, 27, 40, 58, 100, 1000), {}),
        ("opus", (2, 30, 100, 1000), {"format": "OGG", "subtype": "OPUS"}),
        ("mp3", (1, 2, 3, 4, 30, 100, 250), {}),
        ("au", (2, 6, 10, 14, 18, 22, 24, 25), {}),
        ("caf", (2, 6, 10, 20, 40, 60), {}),
        ("w64", (2, 20, 40, 60, 100, 110), {}),
        ("rf64", (2, 8, 20, 30, 60, 79, 90), {}),
    ):
        whole = store(pack.at(f"whole.{suffix}"), noise(f"whole.{suffix}"), **options)
        pack.at(f"whole.{suffix}").unlink()
        for place in (*places, len(whole) // 2, len(whole) - 100, len(whole) - 1):
            name = f"cut/{place}.{suffix}"
            pack.at(name).write_bytes(whole[:place])
            pack.refuse(name, reason)
    for suffix in ("wav", "flac", "mp3", "ogg", "aiff", "m4a", "webm"):
        pack.at(f"cut/0.{suffix}").touch()
        pack.refuse(f"cut/0.{suffix}", "^empty: the file has 0 bytes$")
    for suffix in ("wav", "aiff", "au", "caf"):
        _stored(pack, f"cut/no_samples.{suffix}", np.zeros((1, 0)))
        pack.refuse(f"cut/no_samples.{suffix}", "^empty: 0 samples$")


# ---- Headers


def _wav_headers(pack: _Pack) -> None:
    def write(name: str, **said: Any) -> None:
        samples = noise(f"wav/{name}.wav", said.pop("written", 1))
        pack.at(f"wav/{name}.wav").write_bytes(wav(samples, **said))
        reason = reasons.get(name)
        if reason is None:
            pack.serve(f"wav/{name}.wav", _floats(samples))
        else:
            pack.refuse(f"wav/{name}.wav", reason)

    reasons = {
        "rate_0": "not audio|damaged",
        "rate_1": "^not audio: its sample rate is 1 Hz$",
        "rate_4_ghz": "not audio|damaged",
        "rate_2_ghz": "^not audio: its sample rate is 2000000000 Hz$",
        "channels_0": "not audio|damaged",
        "channels_65535": "not audio|damaged|truncated",
        "bits_0": "not audio|damaged",
        "bits_255": "not audio|damaged",
        "tag_unknown": "not audio|damaged",
        "format_huge": "not audio|damaged",
        "promises_3_gb": r"^truncated: 1\.000 s of \d{5}\.\d{3} s$",
        "chunk_of_4_gb_first": "not audio|damaged|empty",
    }
    info = b"INFOIART\x05\0\0\0name\0\0"
    write("rate_0", rate=0)
    write("rate_1", rate=1)
    write("rate_4_ghz", rate=4_000_000_000)
    write("rate_2_ghz", rate=2_000_000_000)
    write("channels_0", channels=0, align=2)
    write("channels_65535", channels=65535)
    write("bits_0", bits=0)
    write("bits_255", bits=255)
    write("tag_unknown", tag=0xBEEF)
    write("format_huge", format_bytes=0xFFFFFFF0)
    write("promises_3_gb", data_bytes=3_000_000_000, riff_bytes=3_000_000_036)
    write("chunk_of_4_gb_first", before=b"LIST" + struct.pack("<I", 0xFFFFFF00))
    write("data_0", data_bytes=0, riff_bytes=0)
    write("data_0_riff_36", data_bytes=0, riff_bytes=36)
    write("data_ffffffff", data_bytes=0xFFFFFFFF, riff_bytes=0xFFFFFFFF)
    write("data_7fffffff", data_bytes=0x7FFFFFFF, riff_bytes=0x7FFFFFFF)
    write("riff_0", riff_bytes=0)
    write("riff_too_large", riff_bytes=1_000_000_000)
    write("chunks_before", before=chunk(b"LIST", info) + chunk(b"bext", bytes(602)))
    write("chunks_after", after=chunk(b"LIST", info) + chunk(b"id3 ", bytes(10)))
    write("odd_chunk", before=chunk(b"LIST", b"INFO!"))
    write("chunk_named_data_inside", before=chunk(b"junk", b"....data\xff\xff\xff\x7f"))
    write("empty_chunks", before=chunk(b"JUNK", b"") * 50)
    write("junk_after", after=b"\x01\x02\x03" * 33)
    write("picture_after", after=id3(20000))
    # Of a recorder that crashed: the sizes are those of its last look at them, or none.
    write("longer", data_bytes=2000, riff_bytes=2036)
    write("longer_24", written=2, data_bytes=4, riff_bytes=40)
    write("longer_then_chunk", data_bytes=2000, riff_bytes=1_000_000)
    write("align_0", align=0)
    write("align_1", align=1)
    write("align_255", align=255)

    samples = noise("wav/rifx.wav")
    body = np.rint(samples * 32768).astype(">i2").tobytes()
    fields = struct.pack(">HHIIHH", 1, 1, RATE, 2 * RATE, 2, 16)
    chunks = b"WAVE" + chunk(b"fmt ", fields, ">") + chunk(b"data", body, ">")
    pack.at("wav/rifx.wav").write_bytes(chunk(b"RIFX", chunks, ">"))
    pack.serve("wav/rifx.wav", _floats(samples))
    plain = wav(noise("wav/broken"))
    for name, data in (
        ("no_format", plain[:12] + plain[36:]),
        ("data_first", plain[:12] + plain[36:] + plain[12:36]),
        ("no_data", plain[:36] + chunk(b"LIST", info)),
        ("only_zeros_after_magic", plain[:4] + bytes(4000)),
        ("only_ones_after_magic", plain[:12] + b"\xff" * 4000),
    ):
        pack.at(f"wav/{name}.wav").write_bytes(data)
        pack.refuse(f"wav/{name}.wav", "^(not audio|damaged|empty)")


def _other_headers(pack: _Pack) -> None:
    def broken(name: str, reason: str, offset: int, written: bytes, **options: Any) -> None:
        path = pack.at(f"headers/{name}")
        data = bytearray(store(path, noise(f"headers/{name}"), **options))
        data[offset : offset + len(written)] = written
        path.write_bytes(data)
        pack.refuse(f"headers/{name}", reason)

    huge = b"\x7e\0\0\0"
    broken("promises_2_gb.aiff", "^(truncated|damaged|not audio)", 42, huge)
    broken("promises_2_gb.au", "^truncated: 1.000 s", 8, huge)
    broken("promises_8_eb.w64", "^truncated: 1.000 s", 96, b"\xff" * 7 + b"\x7f")
    broken("rate_0.au", "not audio|damaged", 16, bytes(4))
    broken("channels_0.au", "not audio|damaged", 20, bytes(4))
    broken("channels_many.au", "not audio|damaged", 20, b"\0\x10\0\0")
    broken("rate_0.flac", "not audio|damaged", 18, bytes(3))
    broken("promises_36_bits.flac", "truncated|damaged", 21, b"\xff" * 5)
    broken("block_of_16_mb.flac", "^(not audio|damaged|truncated|empty)", 5, b"\xff" * 3)
    broken("zeros_inside.flac", "damaged", 9000, bytes(2000))
    broken("page_of_zeros.ogg", "^(not audio|damaged|truncated|empty)", 0, b"OggS" + bytes(60))

    def behind(name: str, before: bytes, after: bytes) -> None:
        samples = noise(f"headers/{name}")
        path = pack.at(f"headers/{name}")
        path.write_bytes(before + store(path, samples) + after)
        pack.serve(f"headers/{name}", _floats(samples))

    behind("id3_before.flac", id3(500), b"")
    behind("id3_after.flac", b"", b"TAG" + bytes(125))
    behind("zeros_after.flac", b"", bytes(3000))
    behind("zeros_after.aiff", b"", bytes(3000))
    behind("tag_after.w64", b"", b"TAG" + bytes(125))
    behind("zeros_after.w64", b"", bytes(9000))
    counted = bytearray(
        store(pack.at("headers/counts_8000.flac"), noise("headers/counts_8000.flac"))
    )
    counted[22:26] = (8000).to_bytes(4, "big")
    pack.at("headers/counts_8000.flac").write_bytes(counted)
    pack.serve("headers/counts_8000.flac", _floats(noise("headers/counts_8000.flac")))

    for name, offset, lengths in (  # a length that was written before the last samples
        ("longer.aiff", 42, (8008).to_bytes(4, "big")),
        ("longer.au", 8, (8000).to_bytes(4, "big")),
        ("longer.w64", 96, (8024).to_bytes(8, "little")),
    ):
        broken(name, "^longer than its header says: 24,000 bytes", offset, lengths)

    # Two streams in one file, as a radio's recording has them.
    for suffix, form in (
        *(("ogg", "Ogg"), ("opus", "Ogg"), ("flac", "FLAC"), ("wav", "WAV"), ("aiff", "AIFF")),
        *(("au", "AU"), ("caf", "CAF"), ("w64", "W64"), ("rf64", "RF64")),
    ):
        name = f"headers/joined.{suffix}"
        options = {"format": "OGG", "subtype": "OPUS"} if suffix == "opus" else {}
        parts = [store(pack.at(name), tone(f"{name} {part}"), **options) for part in range(2)]
        pack.at(name).write_bytes(b"".join(parts))
        pack.refuse(name, f"^joined: several {form} streams")
    first, second = (store(pack.at("headers/serial.ogg"), tone(f"serial {i}")) for i in range(2))
    pack.at("headers/serial.ogg").write_bytes(first + second.replace(second[14:18], first[14:18]))
    pack.refuse("headers/serial.ogg", "^joined: several Ogg streams")
    pack.at("headers/tagged.flac").write_bytes(
        id3(500) + store(pack.at("headers/tagged.flac"), noise("tagged.flac")) * 2
    )
    pack.refuse("headers/tagged.flac", "^joined: several FLAC streams")


# ---- MP3


def id3(size: int) -> bytes:
    """An ID3v2.3 tag with a picture of ``size`` bytes."""
    picture = b"\0image/png\0\x03\0\x89PNG\r\n\x1a\n" + b"\xff\xfb" * (size // 2)
    frame = b"APIC" + struct.pack(">IH", len(picture), 0) + picture
    length = bytes(len(frame) >> shift & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\x03\0\0" + length + frame


def _mp3(pack: _Pack) -> None:
    if has_pyav():  # in a WAV, whose header guesses its length
        samples = tone("mp3/inside.wav", 1, 48000, 48000)
        encode(pack.at("mp3/inside.wav"), samples, "libmp3lame", form="wav")
        expected = np.concatenate([np.zeros((1, 1105)), samples], axis=1)
        pack.serve("mp3/inside.wav", _floats(expected), 48000, tolerance=0.1, padding=2304)
    junk = np.random.default_rng(5).integers(0, 255, 3000, dtype=np.uint8).tobytes()
    for name, before, after in (
        ("tagged", id3(20000), b""),
        ("two_tags", id3(300) + id3(300), b""),
        ("id3v1_after", b"", b"TAG" + bytes(125)),
        ("zeros_before", bytes(3000), b""),
        ("text_before", b"junk and no frame " * 100, b""),
        ("random_before", junk, b""),
        ("zeros_after", b"", bytes(3000)),
    ):
        file = pack.at(f"mp3/{name}.mp3")
        whole = store(file, tone(f"mp3/{name}.mp3", length=2 * LENGTH))
        expected = soundfile.read(file, dtype="float32", always_2d=True)[0].T
        file.write_bytes(before + whole + after)
        # In pieces, libmpg123 differs in the last bit from all at once.
        pack.serve(f"mp3/{name}.mp3", expected, tolerance=2.0**-22)
    # Two MP3s in one file, as podcasts are made: the first one's header tells the length of the
    # first alone. The encoder's delay (1,105 samples and a frame of 576) comes before either.
    file = pack.at("mp3/joined.mp3")
    parts = [tone(f"mp3/joined.mp3 {part}") for part in range(2)]
    file.write_bytes(store(file, parts[0]) + id3(300) + store(file, parts[1]))
    joined = np.zeros((1, 19537 + LENGTH))
    joined[:, 1681 : 1681 + LENGTH], joined[:, 19537:] = parts
    pack.serve("mp3/joined.mp3", _floats(joined), tolerance=0.05, padding=576)


# ---- Not audio


def _not_audio(pack: _Pack) -> None:
    text = b"this is not sound\n" * 500
    page = b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n" * 20
    picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 40
    for name, data in (
        ("text.wav", text),
        ("text.mp3", text),
        ("text.flac", text),
        ("text.ogg", text),
        ("text.m4a", text),
        ("text.snd", text),
        ("page.wav", page),
        ("page.mp3", page),
        ("json.wav", b'{"a": [1, 2, 3]}' * 100),
        ("picture.wav", picture),
        ("picture.mp3", picture),
        ("picture.flac", picture),
        ("jpeg.mp3", b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(range(255)) * 40),
        ("archive.wav", b"PK\x03\x04" + bytes(range(255)) * 40),
        ("zeros.wav", bytes(10000)),
        ("zeros.mp3", bytes(10000)),
        ("ones.mp3", b"\xff" * 10000),
        ("ones.aac", b"\xff" * 10000),
        ("one_byte.wav", b"R"),
        ("playlist.m4a", b"#EXTM3U\n#EXTINF:10,\nhttp://127.0.0.1:1/x.ts\n#EXT-X-ENDLIST\n"),
        ("list_of_files.mp4", b"ffconcat version 1.0\nfile '/etc/hostname'\n"),
        ("session.mp4", b"v=0\nc=IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n"),
    ):
        pack.at(f"not_audio/{name}").write_bytes(data)
        pack.refuse(f"not_audio/{name}", "^(not audio|damaged|empty)")


# ---- What FFmpeg reads

_SAMPLE_FORMATS = {
    **{"alac": "s16p", "wavpack": "s16p", "flac": "s16", "pcm_s16le": "s16", "pcm_f32le": "flt"},
    **{"aac": "fltp", "libopus": "flt", "wmav2": "fltp", "libopencore_amrnb": "s16"},
    **{"libmp3lame": "fltp", "mp2": "s16", "ac3": "fltp", "eac3": "fltp", "tta": "s16"},
}


def encode(
    path: Path,
    samples: NDArray[Any],
    codec: str,
    rate: int = 48000,
    form: str | None = None,
    video: bool = False,
    options: dict[str, str] | None = None,
) -> bytes:
    """Write ``samples`` (C, N) by PyAV, after a second of pictures if ``video``; the file's bytes.
    Without any channel there is no audio track.

    codec: FFmpeg's name; form: of the container, where the suffix does not tell; options: for it.
    """
    av: Any = import_module("av")
    layout = {0: "", 1: "mono", 2: "stereo", 8: "7.1"}[len(samples)]
    with av.open(str(path), "w", format=form, options=options or {}) as file:
        pictures = None
        if video:
            kinds = {".webm": "vp8", ".mpeg": "mpeg2video", ".mts": "mpeg2video"}
            pictures = file.add_stream(kinds.get(path.suffix, "mpeg4"), rate=10)
            pictures.width = pictures.height = 64
            pictures.pix_fmt = "yuv420p"
        stream = None
        if len(samples):
            stream = file.add_stream(codec, rate=rate, layout=layout)
            stream.codec_context.format = _SAMPLE_FORMATS[codec]
            stream.bit_rate = 12200 if codec == "libopencore_amrnb" else 192_000 * len(samples)
        file.start_encoding()  # the size of the encoder's frames is known from here on
        if pictures is not None:
            for _ in range(10):
                grey = np.full((96, 64), 128, np.uint8)
                file.mux(pictures.encode(av.VideoFrame.from_ndarray(grey, "yuv420p")))
            file.mux(pictures.encode(None))
        if stream is not None:
            packed = np.ascontiguousarray(samples.T, dtype=np.float32).reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(packed, "flt", layout)
            frame.sample_rate, frame.pts = rate, 0
            convert = av.AudioResampler(
                format=_SAMPLE_FORMATS[codec], frame_size=stream.codec_context.frame_size or None
            )
            for part in (*convert.resample(frame), *convert.resample(None)):
                file.mux(stream.encode(part))
            file.mux(stream.encode(None))
    return path.read_bytes()


def _containers(pack: _Pack) -> None:
    """Lossless encodings to the bit; the others by ear: what encoders add in front (``delay``) and
    behind is where it should be."""
    for name, codec, channels, more in (
        ("containers/alac.m4a", "alac", 2, {}),
        ("containers/flac.mka", "flac", 2, {"form": "matroska"}),
        ("containers/a.wv", "wavpack", 2, {"form": "wv"}),
        ("containers/pcm.mov", "pcm_s16le", 2, {"video": True}),
        ("containers/pcm.avi", "pcm_s16le", 2, {"video": True}),
        ("containers/8_channels.wv", "wavpack", 8, {"form": "wv"}),
        ("containers/alac_named.wav", "alac", 1, {"form": "ipod"}),
        ("containers/-i.m4a", "alac", 1, {}),
        ("containers/a.tta", "tta", 2, {}),
        ("containers/flac.ogv", "flac", 2, {"form": "ogg"}),
        ("containers/concat:x.m4a", "alac", 1, {}),
        ("containers/new\nline %03d.m4a", "alac", 1, {}),
    ):
        samples = noise(name, channels, 48000)
        encode(pack.at(name), samples, codec, **more)
        pack.serve(name, _floats(samples), 48000)
    for name, codec, channels, delay, padding, more in (
        ("containers/aac.m4a", "aac", 2, 0, 96, {}),
        ("containers/index_first.m4a", "aac", 1, 0, 96, {"options": {"movflags": "faststart"}}),
        ("containers/8_channels.m4a", "aac", 8, 0, 96, {}),
        ("containers/book.m4b", "aac", 1, 0, 96, {"form": "ipod"}),
        ("containers/film.mp4", "aac", 2, 0, 96, {"video": True}),
        ("containers/film.m4v", "aac", 2, 0, 96, {"video": True, "form": "mp4"}),
        ("containers/phone.3gp", "aac", 1, 0, 96, {}),
        ("containers/opus.webm", "libopus", 2, 0, 0, {}),
        ("containers/opus.weba", "libopus", 2, 0, 0, {"form": "webm"}),
        ("containers/film.webm", "libopus", 2, 0, 0, {"video": True}),
        ("containers/film.mkv", "libopus", 2, 0, 0, {"video": True}),
        # ADTS does not say how much its encoder put in front.
        ("containers/a.aac", "aac", 2, 1024, 2048, {"form": "adts"}),
        # FFmpeg's decoder leaves out the first block of a WMA.
        ("containers/a.wma", "wmav2", 2, -2048, 2048, {"form": "asf"}),
        ("containers/film.wmv", "wmav2", 2, -2048, 2048, {"form": "asf", "video": True}),
    ):
        samples = tone(name, channels, 48000, 48000)
        samples[3:4] = 0  # of eight, the one for low frequencies, which loses the others
        encode(pack.at(name), samples, codec, **more)
        ahead = np.zeros((channels, max(0, delay)))
        expected = np.concatenate([ahead, samples[:, max(0, -delay) :]], axis=1)
        if delay < 0:
            expected = expected[:, : expected.shape[1] // 1024 * 1024]  # whole blocks
        pack.serve(name, _floats(expected), 48000, tolerance=0.05, padding=padding)
    samples = tone("containers/a.amr", length=8000, rate=8000)
    path = pack.at("containers/a.amr")
    data = encode(path, samples, "libopencore_amrnb", 8000, "amr")
    # Speech at 12.2 kbit/s is near the chord by its envelope only.
    pack.serve("containers/a.amr", _floats(samples), 8000, tolerance=1.0, padding=480)
    path.with_name("cut.amr").write_bytes(data[:-10])
    pack.refuse("containers/cut.amr", "^truncated")


def _hostile_containers(pack: _Pack) -> None:
    first = {"options": {"movflags": "faststart"}}
    parts = {"options": {"movflags": "frag_keyframe+empty_moov", "frag_duration": "100000"}}
    # The index of this MP4 comes last, so that one which was cut cannot be opened.
    for name, codec, more, reason in (
        ("a.m4a", "aac", {}, "^truncated: it ends before its index"),
        ("index_first.m4a", "aac", first, "^truncated"),
        ("index_first.mp4", "alac", first, "^truncated"),
        ("in_parts.mp4", "aac", parts, "^truncated"),
        ("film.mov", "pcm_s16le", {"video": True}, "^truncated: it ends before its index"),
        ("film.mkv", "libopus", {"video": True}, "^truncated"),
        ("a.webm", "libopus", {}, "^truncated"),
        ("a.mka", "flac", {"form": "matroska"}, "^truncated"),
        ("film.avi", "pcm_s16le", {"video": True}, "^truncated"),
        ("a.wma", "wmav2", {"form": "asf"}, "^truncated"),
        ("a.aac", "aac", {"form": "adts"}, "^truncated"),
        ("a.wv", "wavpack", {"form": "wv"}, "^truncated"),
    ):
        path = pack.at(f"containers_cut/whole_{name}")
        whole = encode(path, tone(f"whole_{name}", 1, 48000, 48000), codec, **more)
        path.unlink()
        stem, suffix = name.split(".")
        for place in (12, 40, len(whole) // 3, len(whole) * 9 // 10):
            cut = f"containers_cut/{stem}_{place}.{suffix}"
            pack.at(cut).write_bytes(whole[:place])
            pack.refuse(cut, reason if place > 40 else "^(truncated|damaged|not audio|empty)")

    for name, codec, more in (
        ("joined.m4a", "aac", {}),
        ("joined.mka", "flac", {"form": "matroska"}),
        ("joined.avi", "pcm_s16le", {"video": True}),
        ("joined.wma", "wmav2", {"form": "asf"}),
    ):
        path = pack.at(f"hostile/{name}")
        halves = [encode(path, tone(f"{name} {i}", 1, 48000, 48000), codec, **more) for i in (0, 1)]
        path.write_bytes(b"".join(halves))
        pack.refuse(f"hostile/{name}", "^joined: several (MP4|MATROSKA|AVI|ASF) streams")

    samples = tone("hostile/zeros_inside.m4a", 1, 48000, 48000)
    path = pack.at("hostile/zeros_inside.m4a")
    data = bytearray(encode(path, samples, "aac", **first))
    data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    path.write_bytes(data)
    pack.refuse("hostile/zeros_inside.m4a", "^truncated or damaged: decoding fails after")

    rates = [
        encode(
            pack.at("hostile/rates.aac"), tone(f"rate {rate}", 1, rate, rate), "aac", rate, "adts"
        )
        for rate in (44100, 22050)
    ]
    pack.at("hostile/rates.aac").write_bytes(b"".join(rates))
    pack.refuse("hostile/rates.aac", "its sample rate or channels change")

    nan = noise("hostile/nan.mov", 1, 48000)
    nan[0, 24000] = np.nan
    encode(pack.at("hostile/nan.mov"), nan, "pcm_f32le")
    pack.refuse("hostile/nan.mov", r"^not finite: 1 NaN or Inf samples from 0\.500 s on$")

    encode(pack.at("hostile/pictures.mp4"), nan[:0], "", video=True)
    pack.refuse("hostile/pictures.mp4", "^no audio track")
    for name, head in (
        ("box_of_16_eb.mp4", b"\0\0\0\x01mdat\x7f" + b"\xff" * 7),
        ("box_of_4_gb.m4a", b"\xff\xff\xff\xf0moov"),
        ("only_a_type.m4a", b"\0\0\0\x14ftypM4A \0\0\0\0M4A "),
        ("element_of_1_eb.mkv", b"\x1a\x45\xdf\xa3\x01\x0f" + b"\xff" * 6),
        ("header_of_1_eb.wma", bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c") + b"\xff" * 8),
        ("chunk_of_4_gb.avi", b"RIFF\xf0\xff\xff\x70AVI LIST\xff\xff\xff\x7fhdrl"),
        ("block_of_4_gb.wv", b"wvpk\xf0\xff\xff\x7f"),
        ("no_frames.amr", b"#!AMR\n"),
        ("frames_of_nothing.amr", b"#!AMR\n" + b"\xfc" * 3000),
    ):
        pack.at(f"hostile/{name}").write_bytes(head + bytes(3000 if "amr" not in name else 0))
        pack.refuse(f"hostile/{name}", "^(truncated|damaged|empty|not audio)")
