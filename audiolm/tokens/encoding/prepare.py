"""Encode a collection of recordings into a token store, stoppable and resumable at any moment.

    checked clips, sorted by id
      |  each audio once; which of it do the shards hold already?
      v
    the plan: short recordings in batches of similar length, long ones in sections
      |  of these, this part's
      v
    decode and resample, in worker processes         a bad file is skipped, with its reason
      |
      v
    the codec, in this process
      |
      v
    shards, one closed every `shard_seconds`         what a kill cannot take away
      |  is everything there, from all parts?
      v
    sections joined, the index over all clips, and store.json: the store counts as finished

Which clips make a batch depends on the whole collection and not on what is encoded already, and a
shard holds whole batches. So a run that was killed and resumed, or several parts, encode the
batches that one run would have encoded, and end with the same codes to the bit.

Letters: C audio channels, N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from audiolm.datasets.checks.report import CheckReport
from audiolm.datasets.clip import SPLIT_NAMES, SkippedClip
from audiolm.files import atomic_file, hash64
from audiolm.parallel import Part, check_part
from audiolm.tokens.encoding.decode import DecodeJob, Recording
from audiolm.tokens.encoding.encode import encode_jobs
from audiolm.tokens.encoding.locks import StoreLock
from audiolm.tokens.encoding.plan import Plan, make_plan
from audiolm.tokens.encoding.sections import Framing
from audiolm.tokens.parts import how_to_finish, read_skipped, remove_markers, write_marker
from audiolm.tokens.shards import (
    CLIPS,
    MAX_BYTES,
    SECTIONS,
    EncodedClips,
    ShardWriter,
    remove_shards,
    remove_unfinished,
    scan_shards,
    write_shard,
)
from audiolm.tokens.store import INDEX, begin_store, commit_index

if TYPE_CHECKING:
    # Not at run time: training from a store needs no codec, and EnCodec takes seconds to import.
    from audiolm.codec import Codec


@dataclass(frozen=True)
class PrepareSummary:
    """What `prepare_store` did.

    files, hours, frames: of the whole store, or of what is there of it where parts are missing.
    encoded, reused: how many of the files were encoded now, and were there already. encoded_hours:
    what was encoded now. seconds: that all of it took. missing_parts: numbers; while there are any,
    the store is not finished, and `skipped` does not know of theirs.
    """

    store_dir: Path
    files: int
    hours: float
    frames: int
    skipped: tuple[SkippedClip, ...]
    encoded: int
    encoded_hours: float
    reused: int
    seconds: float
    part: Part
    missing_parts: tuple[int, ...]

    @property
    def xrealtime(self) -> float:
        """Seconds of audio encoded a second."""
        return self.encoded_hours * 3600 / self.seconds

    def lines(self, max_skipped: int = 10) -> list[str]:
        """The summary in lines to print, with at most so many of the files skipped."""
        lines = [
            f"store     {self.store_dir}",
            f"files     {self.files:,} ({self.encoded:,} encoded now, {self.reused:,} reused)",
            f"audio     {self.hours:.4g} hours, {self.frames:,} frames",
            f"took      {self.seconds:.1f} s"
            + (f", {self.xrealtime:.0f} times faster than real time" if self.encoded_hours else ""),
            f"skipped   {len(self.skipped):,}",
        ]
        lines += [f"  {bad}" for bad in self.skipped[:max_skipped]]
        if len(self.skipped) > max_skipped:
            rest = len(self.skipped) - max_skipped
            lines.append(f"  and {rest:,} more, see {self.store_dir / 'left_out.json'}")
        if self.missing_parts:
            lines.append(
                f"{self.part} is done; {how_to_finish(self.part.count, self.missing_parts)}"
            )
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def named_after(path: str | Path, *more: str | int) -> str:
    """NAME-HASH: of a folder or file, with a hash of its absolute path and of what else counts."""
    absolute = Path(path).resolve()
    what = json.dumps([absolute.as_posix(), *more])
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", absolute.name).strip("-.") or "store"
    return f"{name}-{hashlib.sha256(what.encode()).hexdigest()[:10]}"


def default_store_dir(root: str | Path, path: str | Path, codec: Codec) -> Path:
    """Where the codes of the recordings at `path` go by default: `root/NAME-HASH`.

    The hash is of the absolute path, the codec's fingerprint and its number of codebooks: another
    codec, or another folder of the same name, has another store.
    """
    return Path(root) / named_after(path, codec.fingerprint, codec.num_codebooks)


def prepare_store(
    report: CheckReport,
    codec: Codec,
    store_dir: str | Path,
    *,
    group: str | None = None,
    part: Part = Part(0, 1),  # noqa: B008
    num_workers: int = 0,
    batch_seconds: float = 120.0,
    section_seconds: float = 120.0,
    shard_seconds: float = 20.0,
    show_progress: bool = True,
) -> PrepareSummary:
    """Encode checked clips into the store at `store_dir`, which then holds these and no others.

    Audio that the store holds is not encoded again, whatever its file is called now; what a source
    says of it (split, label, text) is taken anew. Files that cannot be read any more are skipped;
    these and the check's are listed in the summary and in `left_out.json`.

    group: the column (or label, text) whose clips of one value are split off together; None: each
        clip by itself.
    part: encode only this part of the work. All parts may run at the same time, with the same
        `store_dir` or each with its own; which then have to be put together. The part that finds
        everything there finishes the store. A whole run waits for parts that are running, as does
        the same part.
    num_workers: processes that decode; 0 decodes in this one. The store is the same.
    batch_seconds: seconds of audio handed to the codec at once, in clips of similar length; the
        codec takes from it as much at a time as its device likes.
    section_seconds: longer recordings are encoded in sections of about this, in constant memory.
    shard_seconds: at most about this much work is lost by a kill, or what is being encoded.
    Raises ValueError where the store is of another codec, where nothing can be read, and for a
    group that no clip has; ChildProcessError where a worker dies. Ctrl-C and any kill keep what was
    encoded; the next run resumes there.
    """
    started = time.perf_counter()
    check_part(part)
    if report.part.count > 1:
        raise ValueError(
            f"the check is of {report.part} only: every part is encoded by a check of all clips"
        )
    if not report.kept:
        raise ValueError("no clips to encode: the check skipped all of them")
    split_hashes = _split_hashes(report, group)
    plan = make_plan(report.audio, Framing.of(codec, section_seconds), batch_seconds, part.count)
    store = Path(store_dir)
    store.mkdir(parents=True, exist_ok=True)
    files = _Files(store, codec)
    with StoreLock(store, part) as lock:
        begin_store(
            store, codec.identity(), codec.num_codebooks, codec.codebook_size, codec.frame_rate
        )
        if lock.alone():
            remove_unfinished(store)
        lock.share()

        encoded = encode_jobs(
            _decode_jobs(report, plan, part, files.scan(CLIPS), files.scan(SECTIONS)),
            plan,
            codec,
            files.writer(CLIPS, shard_seconds),
            files.writer(SECTIONS, shard_seconds),
            num_workers=num_workers,
            show_progress=show_progress,
        )

        marker = None
        if part.count > 1:
            marker = write_marker(store, part, plan.name, encoded.skipped)
        lock.unshare()
        finished = marker is not None and not marker.exists()  # by another, in the meantime
        reasons = read_skipped(store, part.count, plan.name) | encoded.skipped
        held, sections = files.scan(CLIPS), files.scan(SECTIONS)
        wanted = held.find(plan.keys) < 0
        wanted &= ~np.isin(plan.keys, np.array([*reasons], np.uint64))
        missing_parts: tuple[int, ...] = ()
        if not finished:
            missing_parts = tuple(sorted({owner for owner, _ in plan.missing(wanted, sections)}))
            assert part.number not in missing_parts, "what was to be encoded is not there"
            if wanted.any() and not missing_parts:
                _join(store, plan, wanted, sections)
                held = files.scan(CLIPS)
        rows = held.find(report.audio["key"])
        kept = np.flatnonzero(rows >= 0)
        frames = int(held.rows["frames"][rows[kept]].sum())
        skipped = _skipped(report, reasons, rows)
        if not missing_parts and not finished:
            _finish(store, report, split_hashes, held, rows, skipped)
        if not missing_parts and lock.alone():
            remove_shards(store, SECTIONS)
        now = np.isin(report.audio["key"][kept], plan.keys[sorted(encoded.recordings)])
        return PrepareSummary(
            store_dir=store,
            files=len(kept),
            hours=frames / codec.frame_rate / 3600,
            frames=frames,
            skipped=skipped,
            encoded=int(now.sum()),
            encoded_hours=plan.seconds(encoded.frames) / 3600,
            reused=int((~now).sum()),
            seconds=time.perf_counter() - started,
            part=part,
            missing_parts=missing_parts,
        )


class _Files:
    """The shards of a store, of both kinds."""

    def __init__(self, store: Path, codec: Codec) -> None:
        self._store = store
        self._codes = codec.num_codebooks, codec.codebook_size

    def scan(self, kind: str) -> EncodedClips:
        return scan_shards(self._store, *self._codes, kind)

    def writer(self, kind: str, max_seconds: float) -> ShardWriter:
        return ShardWriter(self._store, kind, *self._codes, max_seconds=max_seconds)


def _decode_jobs(
    report: CheckReport, plan: Plan, part: Part, held: EncodedClips, sections: EncodedClips
) -> list[DecodeJob]:
    """This part's work that is not done yet: batches, then long recordings."""
    wanted = held.find(plan.keys) < 0
    planned = [job for owner, job in plan.missing(wanted, sections) if owner == part.number]
    jobs = [
        DecodeJob([_recording(report, plan, r) for r in job.recordings], [])
        for job in planned
        if not job.sections
    ]
    long: dict[int, list[int]] = {}
    for job in planned:
        if job.sections:
            long.setdefault(job.recordings[0], []).extend(job.sections)
    for r, numbers in long.items():
        jobs.append(
            DecodeJob([_recording(report, plan, r)], [plan.section(r, n) for n in sorted(numbers)])
        )
    return jobs


def _recording(report: CheckReport, plan: Plan, index: int) -> Recording:
    i = int(plan.clips[index])
    clip, audio = report.kept[i], report.audio[i]
    return Recording(
        index,
        clip.path,
        clip.start,
        clip.end,
        num_samples=int(audio["num_samples"]),
        sample_rate=int(audio["sample_rate"]),
        size=int(audio["size"]),
        mtime_ns=int(audio["mtime_ns"]),
    )


def _join(store: Path, plan: Plan, wanted: NDArray[np.bool_], sections: EncodedClips) -> None:
    """Make clips in shards of the recordings that are wanted, all of whose sections are there."""
    clips: list[tuple[int, list[NDArray[Any]]]] = []
    size = 0
    for recording in np.flatnonzero(wanted).tolist():
        chunks = [sections.codes(row) for row in plan.find_sections(recording, sections).tolist()]
        clips.append((int(plan.keys[recording]), chunks))
        size += sum(chunk.nbytes for chunk in chunks)
        if size >= MAX_BYTES:
            write_shard(store, CLIPS, clips)
            clips, size = [], 0
    if clips:
        write_shard(store, CLIPS, clips)


def _finish(
    store: Path,
    report: CheckReport,
    split_hashes: NDArray[np.uint64],
    held: EncodedClips,
    rows: NDArray[np.int64],
    skipped: Sequence[SkippedClip],
) -> None:
    """Put the new index in place. rows: of each clip in `held`, -1 for what is skipped."""
    _write_skipped(store, skipped)
    kept = np.flatnonzero(rows >= 0)
    if not len(kept):
        raise ValueError(
            f"none of the {len(rows)} files can be encoded; the first, "
            f"{skipped[len(report.skipped)]}"
        )
    index, shards = _index(report, split_hashes, kept, held, rows[kept])
    commit_index(store, shards, index, _records(report, kept, index["frames"]))
    remove_markers(store)


def _split_hashes(report: CheckReport, group: str | None) -> NDArray[np.uint64]:
    """For each clip, the hash of what is split off together with it.

    Raises ValueError for a group of which the source says nothing.
    """
    values = [None if group is None else clip.value(group) for clip in report.kept]
    if group is not None and all(value is None for value in values):
        said = {
            name
            for clip in report.kept
            for name in (*clip.columns, "label", "text")
            if clip.value(name) is not None
        }
        remedy = (
            f"it says {', '.join(sorted(said))}; name one of these, or no group"
            if said
            else "nor anything else; give it metadata or a pattern of file names that says it"
        )
        raise ValueError(f"group={group}: the source says no {group} of any clip, {remedy}")
    hashes = np.array(
        [
            hash64(clip.id if value is None else value)
            for clip, value in zip(report.kept, values, strict=True)
        ],
        np.uint64,
    )
    return hashes[report.split_as]


def _split(report: CheckReport, i: int) -> str | None:
    """The split that the source names for clip i, or for the one that it shares its split with."""
    return report.kept[int(report.split_as[i])].split


def _index(
    report: CheckReport,
    split_hashes: NDArray[np.uint64],
    kept: NDArray[np.int64],
    held: EncodedClips,
    rows: NDArray[np.int64],
) -> tuple[NDArray[Any], list[str]]:
    """The `INDEX` rows of the clips that are kept, and the names of the shards that hold them."""
    found = held.rows[rows]
    used, shard = np.unique(found["shard"], return_inverse=True)
    index = np.zeros(len(kept), INDEX)
    index["shard"] = shard
    index["offset"] = found["offset"]
    index["frames"] = found["frames"]
    index["split_hash"] = split_hashes[kept]
    for row, i in enumerate(kept.tolist()):
        index["id_hash"][row] = hash64(report.kept[i].id)
        split = _split(report, i)
        index["split"][row] = 0 if split is None else 1 + SPLIT_NAMES.index(split)
    return index, [held.names[number] for number in used]


def _records(
    report: CheckReport, kept: NDArray[np.int64], frames: NDArray[np.int64]
) -> Iterator[dict[str, Any]]:
    durations = report.durations
    for i, count in zip(kept.tolist(), frames.tolist(), strict=True):
        clip = report.kept[i]
        yield {
            "id": clip.id,
            "path": str(clip.path),
            "start": clip.start,
            "end": clip.end,
            "duration": float(durations[i]),
            "frames": count,
            "split": _split(report, i),
            "label": clip.label,
            "text": clip.text,
            "columns": dict(clip.columns),
        }


def _skipped(
    report: CheckReport, reasons: Mapping[int, str], rows: NDArray[np.int64]
) -> tuple[SkippedClip, ...]:
    """What the check skipped, and the clips of which there are reasons why there are no codes."""
    keys = report.audio["key"].tolist()
    now = [
        SkippedClip(report.kept[i].path, reasons[keys[i]])
        for i in np.flatnonzero(rows < 0).tolist()
        if keys[i] in reasons
    ]
    return (*report.skipped, *now)


def _write_skipped(store: Path, skipped: Sequence[SkippedClip]) -> None:
    entries = [{"path": str(bad.path), "reason": bad.reason} for bad in skipped]
    with atomic_file(store / "left_out.json") as file:
        file.write(json.dumps(entries, indent=1).encode("ascii") + b"\n")
