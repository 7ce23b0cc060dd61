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

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from audiolm.datasets.checks.report import CheckReport
from audiolm.datasets.clip import SkippedClip
from audiolm.files import hash64, user_path
from audiolm.parallel import Part, check_part
from audiolm.progress import audio_rate
from audiolm.tokens.encoding.decode import DecodeJob, Recording
from audiolm.tokens.encoding.encode import Encoded, encode_jobs
from audiolm.tokens.encoding.finish import all_skipped, finish_store, join_sections
from audiolm.tokens.encoding.locks import StoreLock
from audiolm.tokens.encoding.places import removed_clips
from audiolm.tokens.encoding.plan import Plan, make_plan
from audiolm.tokens.encoding.sections import Framing
from audiolm.tokens.parts import how_to_finish, read_skipped, write_marker
from audiolm.tokens.shards import (
    CLIPS,
    SECTIONS,
    EncodedClips,
    StoreShards,
    remove_shards,
    remove_unfinished,
)
from audiolm.tokens.store import begin_store

if TYPE_CHECKING:
    # Not at run time: training from a store needs no codec, and EnCodec takes seconds to import.
    from audiolm.codec import Codec


@dataclass(frozen=True)
class PrepareSummary:
    """What `prepare_store` did.

    files, hours, frames: of the whole store, or of what is there of it where parts are missing.
    encoded, reused: how many of the files were encoded now, and were there already. encoded_hours:
    what was encoded now. seconds: that all of it took. missing_parts: numbers; while there are any,
    the store is not finished, and `skipped` does not know of theirs. removed: clips that were in
    the store and are not in the collection any more.
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
    removed: int = 0

    def lines(self, max_skipped: int = 10) -> list[str]:
        """The summary in lines to print, with at most so many of the files skipped."""
        rate = audio_rate(self.encoded_hours * 3600, self.seconds)
        lines = [
            f"store     {self.store_dir}",
            f"files     {self.files:,} ({self.encoded:,} encoded now, {self.reused:,} reused)",
            f"audio     {self.hours:.4g} hours, {self.frames:,} frames",
            f"took      {self.seconds:.1f} s" + (f", {rate}" if self.encoded_hours else ""),
            f"skipped   {len(self.skipped):,}",
        ]
        lines += [f"  {bad}" for bad in self.skipped[:max_skipped]]
        if len(self.skipped) > max_skipped:
            rest = len(self.skipped) - max_skipped
            lines.append(f"  and {rest:,} more, see {self.store_dir / 'left_out.json'}")
        if self.removed:
            gone = "clips of the store are" if self.removed > 1 else "clip of the store is"
            lines.append(f"removed   {self.removed:,} {gone} not among the recordings any more")
        if self.missing_parts:
            lines.append(
                f"{self.part} is done; {how_to_finish(self.part.count, self.missing_parts)}"
            )
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def prepare_store(
    report: CheckReport,
    codec: Codec,
    store_dir: str | Path,
    *,
    group: str | None = None,
    source: str | Path | None = None,
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
    source: where the recordings lie, by which a store of others is told; None: the folder that
        holds all of them.
    part: encode only this part of the work. All parts may run at the same time, with the same
        `store_dir` or each with its own; which then have to be put together. The part that finds
        everything there finishes the store. A whole run waits for parts that are running, as does
        the same part.
    num_workers: processes that decode; 0 decodes in this one. The store is the same.
    batch_seconds: seconds of audio handed to the codec at once, in clips of similar length; the
        codec takes from it as much at a time as its device likes.
    section_seconds: longer recordings are encoded in sections of about this, in constant memory.
    shard_seconds: at most about this much work is lost by a kill, or what is being encoded.
    Raises ValueError where the store is of another codec, or of other recordings most of which
    would leave it, where nothing can be read, and for a group that no clip has; ChildProcessError
    where a worker dies. Ctrl-C and any kill keep what was encoded; the next run resumes there.
    """
    started = time.perf_counter()
    check_part(part)
    _check_report(report)
    work = _Preparation(
        report,
        codec,
        user_path(store_dir),
        _split_hashes(report, group),
        make_plan(report.audio, Framing.of(codec, section_seconds), batch_seconds, part.count),
        part,
        str(user_path(source).resolve()) if source is not None else _common_folder(report),
    )
    work.store.mkdir(parents=True, exist_ok=True)
    with StoreLock(work.store, part) as lock:
        removed = work.begin(lock)
        lock.share()
        encoded, marker = work.encode(shard_seconds, num_workers, show_progress)
        lock.unshare()
        # Before markers go: why there are no codes, in all parts that are done.
        reasons = read_skipped(work.store, part.count, work.plan.name) | encoded.skipped
        held, missing = work.complete(marker, reasons, lock)
        seconds = time.perf_counter() - started
        return work.summary(encoded, held, reasons, missing, removed, seconds)


@dataclass(frozen=True)
class _Preparation:
    """What the steps of `prepare_store` have in common."""

    report: CheckReport
    codec: Codec
    store: Path
    split_hashes: NDArray[np.uint64]
    plan: Plan
    part: Part
    source: str

    @property
    def shards(self) -> StoreShards:
        return StoreShards(self.store, self.codec.num_codebooks, self.codec.codebook_size)

    def begin(self, lock: StoreLock) -> int:
        """Claim the folder for the codec, and clear away what a kill has left.

        Returns:
            how many clips will leave the store.
        """
        codec = self.codec
        removed = removed_clips(self.store, self.report, self.source)
        begin_store(
            self.store,
            codec.identity(),
            codec.num_codebooks,
            codec.codebook_size,
            codec.frame_rate,
        )
        if lock.alone():
            remove_unfinished(self.store)
        return removed

    def encode(
        self, shard_seconds: float, num_workers: int, show_progress: bool
    ) -> tuple[Encoded, Path | None]:
        """Encode what is missing of this part; with the part's marker where there are several."""
        clips, sections = (self.shards.writer(kind, shard_seconds) for kind in (CLIPS, SECTIONS))
        encoded = encode_jobs(
            _decode_jobs(self.report, self.plan, self.part, self.shards),
            self.plan,
            self.codec,
            clips,
            sections,
            num_workers=num_workers,
            show_progress=show_progress,
        )
        if self.part.count == 1:
            return encoded, None
        return encoded, write_marker(self.store, self.part, self.plan.name, encoded.skipped)

    def complete(
        self, marker: Path | None, reasons: Mapping[int, str], lock: StoreLock
    ) -> tuple[EncodedClips, tuple[int, ...]]:
        """Join sections and finish the store, if all parts are there.

        reasons: why there are no codes, by the key of the audio.

        Returns:
            the clips in shards, and the numbers of the parts that are missing.
        """
        missing: tuple[int, ...] = ()
        if marker is not None and not marker.exists():  # finished by another, in the meantime
            held = self.shards.scan(CLIPS)
        else:
            held, missing = join_sections(self.shards, self.plan, reasons)
            assert self.part.number not in missing, "what was to be encoded is not there"
            if not missing:
                finish_store(self.store, self.report, self.split_hashes, held, reasons, self.source)
        if not missing and lock.alone():
            remove_shards(self.store, SECTIONS)
        return held, missing

    def summary(
        self,
        encoded: Encoded,
        held: EncodedClips,
        reasons: Mapping[int, str],
        missing_parts: tuple[int, ...],
        removed: int,
        seconds: float,
    ) -> PrepareSummary:
        keys = self.report.audio["key"]
        rows = held.find(keys)
        kept = np.flatnonzero(rows >= 0)
        frames = int(held.rows["frames"][rows[kept]].sum())
        now = np.isin(keys[kept], self.plan.keys[sorted(encoded.recordings)])
        return PrepareSummary(
            store_dir=self.store,
            files=len(kept),
            hours=frames / self.codec.frame_rate / 3600,
            frames=frames,
            skipped=all_skipped(self.report, reasons, rows),
            encoded=int(now.sum()),
            encoded_hours=self.plan.seconds(encoded.frames) / 3600,
            reused=int((~now).sum()),
            seconds=seconds,
            part=self.part,
            missing_parts=missing_parts,
            removed=removed,
        )


def _common_folder(report: CheckReport) -> str:
    """The innermost folder that holds all recordings; nothing where there is none."""
    folders = {os.path.dirname(os.path.abspath(clip.path)) for clip in report.kept}
    try:
        return os.path.commonpath(folders)
    except ValueError:  # on several drives
        return ""


def _check_report(report: CheckReport) -> None:
    if report.part.count > 1:
        raise ValueError(
            f"the check is of {report.part} only: every part is encoded by a check of all clips"
        )
    if not report.kept:
        raise ValueError("no clips to encode: the check skipped all of them")


def _decode_jobs(
    report: CheckReport, plan: Plan, part: Part, shards: StoreShards
) -> list[DecodeJob]:
    """This part's work that is not done yet: batches, then long recordings."""
    sections = shards.scan(SECTIONS)
    wanted = shards.scan(CLIPS).find(plan.keys) < 0
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
