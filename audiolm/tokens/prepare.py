"""Encode a collection of recordings into a token store, stoppable and resumable at any moment.

    clips, sorted by id
      |  which of them do the shards hold already? (same id, size and time of last change)
      v
    batches: short clips of similar length together, long files alone and in blocks
      |  decode, resample, encode                    a bad file is left out, with its reason
      v
    shards, one closed every `shard_seconds`         what a kill cannot take away
      |
      v
    the index over all clips, and store.json         the store counts as finished

Which clips make a batch depends on the whole collection and not on what is encoded already, and a
shard holds whole batches. So a run that was killed and goes on encodes the batches it would have
encoded, and ends with the same codes to the bit.

Letters: C audio channels, N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from audiolm.audio import AudioError, read_audio, read_info, stream_audio
from audiolm.tokens.shards import (
    EncodedClips,
    ShardWriter,
    atomic_file,
    hash64,
    remove_unfinished,
    scan_shards,
    source_key,
)
from audiolm.tokens.sources import SPLIT_NAMES, Clip
from audiolm.tokens.store import INDEX, begin_store, commit_index

if TYPE_CHECKING:
    # Not at run time: training from a store needs no codec, and EnCodec takes seconds to import.
    from audiolm.codec import Codec

# Clips that are sorted by length together. Batches get no better with more.
_PLAN_CLIPS = 512


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is not in the store, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return str(AudioError(self.path, self.reason))


@dataclass(frozen=True)
class PrepareSummary:
    """What `prepare_store` did.

    files, hours, frames: of the whole store. encoded, reused: how many of the files were encoded
    now, and were there already. encoded_hours: of the former. seconds: that all of it took.
    """

    store_dir: Path
    files: int
    hours: float
    frames: int
    left_out: tuple[LeftOut, ...]
    encoded: int
    encoded_hours: float
    reused: int
    seconds: float

    @property
    def xrealtime(self) -> float:
        """Seconds of audio encoded a second."""
        return self.encoded_hours * 3600 / self.seconds

    def lines(self, max_left_out: int = 10) -> list[str]:
        """The summary in lines to print, with at most so many of the files left out."""
        lines = [
            f"store     {self.store_dir}",
            f"files     {self.files:,} ({self.encoded:,} encoded now, {self.reused:,} reused)",
            f"audio     {self.hours:.4g} hours, {self.frames:,} frames",
            f"took      {self.seconds:.1f} s"
            + (f", {self.xrealtime:.0f} times faster than real time" if self.encoded else ""),
            f"left out  {len(self.left_out):,}",
        ]
        lines += [f"  {bad}" for bad in self.left_out[:max_left_out]]
        if len(self.left_out) > max_left_out:
            rest = len(self.left_out) - max_left_out
            lines.append(f"  and {rest:,} more, see {self.store_dir / 'left_out.json'}")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def default_store_dir(root: str | Path, folder: str | Path, codec: Codec) -> Path:
    """Where the codes of a folder's recordings go by default: `root/NAME-HASH`.

    The hash is of the folder's absolute path, the codec's fingerprint and its number of codebooks:
    another codec, or another folder of the same name, has another store.
    """
    absolute = Path(folder).resolve()
    what = json.dumps([absolute.as_posix(), codec.fingerprint, codec.num_codebooks])
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", absolute.name).strip("-.") or "store"
    return Path(root) / f"{name}-{hashlib.sha256(what.encode()).hexdigest()[:10]}"


def prepare_store(
    clips: Iterable[Clip],
    codec: Codec,
    store_dir: str | Path,
    *,
    batch_seconds: float = 160.0,
    stream_seconds: float = 30.0,
    shard_seconds: float = 45.0,
    show_progress: bool = True,
) -> PrepareSummary:
    """Encode clips into the store at `store_dir`, which then holds these clips and no others.

    Clips whose files are unchanged are not encoded again; what a source says of them (split, label,
    text) is taken anew. Files that cannot be read are left out, listed in the summary and in
    `left_out.json`. A second process waits until the first is done.

    batch_seconds: seconds of audio handed to the codec at once, in clips of similar length; the
        codec takes from it as much at a time as its device likes.
    stream_seconds: longer files are read and encoded in blocks, in constant memory.
    shard_seconds: at most about this much work is lost by a kill, or the batch being encoded.
    Raises ValueError where the store is of another codec, where no file can be read, and for two
    clips of one id. Ctrl-C keeps what was encoded; the next run goes on from there.
    """
    started = time.perf_counter()
    store = Path(store_dir)
    ordered = sorted(clips, key=lambda clip: clip.id)
    for first, second in pairwise(ordered):
        if first.id == second.id:
            raise ValueError(
                f"two clips have the id {first.id!r}, {first.path} and {second.path}; "
                "every clip needs its own"
            )
    if not ordered:
        raise ValueError("no clips to encode: the source is empty")
    store.mkdir(parents=True, exist_ok=True)
    with _lock(store):
        begin_store(
            store, codec.identity(), codec.num_codebooks, codec.codebook_size, codec.frame_rate
        )
        remove_unfinished(store)
        encoded = scan_shards(store, codec.num_codebooks, codec.codebook_size)
        work = _Collection(ordered, encoded, show_progress)
        reused = len(ordered) - len(work.left_out) - int(work.missing.sum())
        writer = ShardWriter(
            store, codec.num_codebooks, codec.codebook_size, max_seconds=shard_seconds
        )
        _encode_missing(work, codec, writer, batch_seconds, stream_seconds, show_progress)
        if len(work.left_out) < len(ordered):
            encoded = scan_shards(store, codec.num_codebooks, codec.codebook_size)
        rows = encoded.find(work.keys)
        left_out = tuple(LeftOut(ordered[i].path, why) for i, why in sorted(work.left_out.items()))
        _write_left_out(store, left_out)
        if len(left_out) == len(ordered):
            raise ValueError(
                f"none of the {len(ordered)} files can be encoded; the first, {left_out[0]}"
            )
        kept = np.array([i for i in range(len(ordered)) if i not in work.left_out], np.int64)
        assert (rows[kept] >= 0).all(), "a clip that was encoded is not in the shards"
        index, shards = _index(ordered, kept, encoded, rows[kept])
        commit_index(store, shards, index, work.records(kept, index["frames"]))
        frames = int(index["frames"].sum())
        encoded_now = kept[work.missing[kept]]
        return PrepareSummary(
            store_dir=store,
            files=len(kept),
            hours=frames / codec.frame_rate / 3600,
            frames=frames,
            left_out=left_out,
            encoded=len(encoded_now),
            encoded_hours=float(work.durations[encoded_now].sum()) / 3600,
            reused=reused,
            seconds=time.perf_counter() - started,
        )


class _Collection:
    """The clips and what is known of each before encoding, in arrays of one entry a clip.

    sizes, mtimes: of the files. keys: what to look for in the shards. missing: not in them.
    durations: in seconds, NaN for files left out. left_out: reasons, by the clip's place.
    """

    def __init__(self, clips: list[Clip], encoded: EncodedClips, show_progress: bool) -> None:
        n = len(clips)
        self.clips = clips
        self.left_out: dict[int, str] = {}
        self.sizes = np.zeros(n, np.int64)
        self.mtimes = np.zeros(n, np.int64)
        self.keys = np.zeros(n, np.uint64)
        for i, clip in enumerate(clips):
            try:
                status = clip.path.stat()
            except OSError as error:
                self.left_out[i] = _reason(error)
                continue
            self.sizes[i] = status.st_size
            self.mtimes[i] = status.st_mtime_ns
            self.keys[i] = source_key(clip.id, status.st_size, status.st_mtime_ns)
        rows = encoded.find(self.keys)
        rows[list(self.left_out)] = -1
        self.missing = rows < 0
        self.durations = np.full(n, math.nan)
        self.durations[~self.missing] = encoded.rows["duration"][rows[~self.missing]]
        for i in tqdm(
            np.flatnonzero(self.missing),
            desc="reading headers",
            unit="file",
            leave=False,
            disable=not show_progress or not self.missing.any(),
        ):
            if i in self.left_out:
                continue
            try:
                self.durations[i] = read_info(clips[i].path).duration
            except (OSError, ValueError) as error:
                self.left_out[int(i)] = _reason(error)
        self.missing &= ~np.isnan(self.durations)

    def record(self, i: int) -> dict[str, Any]:
        """The record of clip i, but for its frames."""
        clip = self.clips[i]
        return {
            "id": clip.id,
            "path": str(clip.path),
            "duration": float(self.durations[i]),
            "split": clip.split,
            "label": clip.label,
            "text": clip.text,
            "size": int(self.sizes[i]),
            "mtime_ns": int(self.mtimes[i]),
        }

    def records(
        self, kept: NDArray[np.int64], frames: NDArray[np.int64]
    ) -> Iterator[dict[str, Any]]:
        for i, count in zip(kept, frames, strict=True):
            yield self.record(int(i)) | {"frames": int(count)}


def plan_batches(
    durations: NDArray[np.float64], batch_seconds: float, stream_seconds: float
) -> Iterator[list[int]]:
    """Group clips of these durations (seconds; NaN: no clip) into batches of similar length.

    Every clip is in one batch. A batch is one clip, or clips of `batch_seconds` in all, none of
    them longer than `stream_seconds`.
    """
    usable = np.flatnonzero(~np.isnan(durations))
    for first in range(0, len(usable), _PLAN_CLIPS):
        chunk = usable[first : first + _PLAN_CLIPS]
        batch: list[int] = []
        seconds = 0.0
        for i in chunk[np.argsort(durations[chunk], kind="stable")]:
            duration = float(durations[i])
            if batch and (duration > stream_seconds or seconds + duration > batch_seconds):
                yield batch
                batch, seconds = [], 0.0
            batch.append(int(i))
            seconds += duration
        yield batch


def _encode_missing(
    work: _Collection,
    codec: Codec,
    writer: ShardWriter,
    batch_seconds: float,
    stream_seconds: float,
    show_progress: bool,
) -> None:
    """Encode what the shards lack, and add to `work.left_out` what cannot be."""
    progress = _Progress(
        seconds=float(work.durations[work.missing].sum()),
        show=show_progress and bool(work.missing.any()),
    )
    done = 0
    try:
        for batch in plan_batches(work.durations, batch_seconds, stream_seconds):
            todo = [i for i in batch if work.missing[i]]
            if not todo:
                continue
            if work.durations[todo[0]] > stream_seconds:
                codes = _encode_long(work, todo[0], codec, progress)
            else:
                codes = _encode_short(work, todo, codec)
                progress.advance(float(work.durations[todo].sum()))
            writer.add([(work.record(i), clip_codes) for i, clip_codes in codes])
            writer.close_if_due()
            done += len(codes)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"stopped; {done} of {int(work.missing.sum())} files were encoded and are kept, "
            "run the same command to go on"
        ) from None
    finally:
        writer.close()
        progress.close()


class _Progress:
    """A bar of hours of audio, with the rate so far."""

    def __init__(self, seconds: float, show: bool) -> None:
        self._started = time.perf_counter()
        self._seconds = 0.0
        self._bar = tqdm(
            total=seconds / 3600,
            desc="encoding",
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n:.3f}/{total:.3f} hours "
            "[{elapsed}<{remaining}{postfix}]",
            disable=not show,
        )

    def advance(self, seconds: float) -> None:
        """So many more seconds of audio are done."""
        self._seconds += seconds
        rate = self._seconds / (time.perf_counter() - self._started)
        self._bar.set_postfix_str(f"{rate:.0f} x realtime", refresh=False)
        # Headers may promise a little less than was there; a bar over its end warns.
        self._bar.update(min(seconds / 3600, self._bar.total - self._bar.n))

    def close(self) -> None:
        self._bar.close()


def _encode_short(
    work: _Collection, todo: list[int], codec: Codec
) -> list[tuple[int, NDArray[Any]]]:
    """Codes (K, T) of several clips at once, of those that can be read."""
    waveforms: dict[int, Tensor] = {}
    for i in todo:
        try:
            waveforms[i], _ = read_audio(work.clips[i].path, codec.sample_rate, codec.channels)
        except (OSError, ValueError) as error:
            work.left_out[i] = _reason(error)
    if not waveforms:
        return []
    try:
        codes = codec.encode_batch(list(waveforms.values()))
    except ValueError as error:
        if len(waveforms) == 1:
            work.left_out[next(iter(waveforms))] = _reason(error)
            return []
        # One of them cannot be encoded: find out which.
        return [pair for i in waveforms for pair in _encode_short(work, [i], codec)]
    return [(i, clip.cpu().numpy()) for i, clip in zip(waveforms, codes, strict=True)]


def _encode_long(
    work: _Collection, i: int, codec: Codec, progress: _Progress
) -> list[tuple[int, NDArray[Any]]]:
    """Codes (K, T) of a long file, read and encoded block by block; [] if it cannot be."""

    def blocks() -> Iterator[Tensor]:
        for block in stream_audio(work.clips[i].path, codec.sample_rate, codec.channels):
            yield block
            progress.advance(block.shape[1] / codec.sample_rate)

    try:
        pieces = list(codec.encode_stream(blocks()))
        return [(i, torch.cat(pieces, dim=1).cpu().numpy())]
    except (OSError, ValueError) as error:
        work.left_out[i] = _reason(error)
        return []


def _index(
    clips: list[Clip],
    kept: NDArray[np.int64],
    encoded: EncodedClips,
    rows: NDArray[np.int64],
) -> tuple[NDArray[Any], list[str]]:
    """The `INDEX` rows of the clips that are kept, and the names of the shards that hold them."""
    found = encoded.rows[rows]
    used, shard = np.unique(found["shard"], return_inverse=True)
    index = np.zeros(len(kept), INDEX)
    index["shard"] = shard
    index["offset"] = found["offset"]
    index["frames"] = found["frames"]
    for row, i in enumerate(kept):
        clip = clips[i]
        index["id_hash"][row] = hash64(clip.id)
        index["split"][row] = 0 if clip.split is None else 1 + SPLIT_NAMES.index(clip.split)
    return index, [encoded.names[number] for number in used]


def _write_left_out(store: Path, left_out: tuple[LeftOut, ...]) -> None:
    entries = [{"path": str(bad.path), "reason": bad.reason} for bad in left_out]
    with atomic_file(store / "left_out.json") as file:
        file.write(json.dumps(entries, indent=1).encode("ascii") + b"\n")


def _reason(error: Exception) -> str:
    """Why a file was left out, in one line and without its path, which stands beside it."""
    if isinstance(error, AudioError):
        text = error.reason
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror
    else:
        text = str(error)
    return " ".join(text.split())


@contextmanager
def _lock(store: Path) -> Iterator[None]:
    """Hold the store alone. The system lets go of the lock when its process ends, however."""
    lock = filelock.FileLock(store / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        print(
            f"waiting: another process is preparing {store} (Ctrl-C to stop waiting)",
            file=sys.stderr,
        )
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
