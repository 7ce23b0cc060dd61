"""Batches of token stores, for training and for going through the validation set.

Letters: B batch, K codebooks, T codec frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler

from audiolm.batches.buckets import StepSampler, TrainingBatches, validation_batches
from audiolm.batches.conditions import ClipConditions, whole_clips, without_long_texts
from audiolm.batches.splits import Split, split_clips
from audiolm.batches.windows import WindowBatch, WindowReader
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.patterns import Pattern, make_pattern
from audiolm.parallel import ignore_interrupts
from audiolm.text_encoder import TextEncoder
from audiolm.tokens.mix import Mix
from audiolm.tokens.store import TokenStore


class StepLoader(DataLoader[Any]):
    """A DataLoader whose first batch is that of the step at which a training stands.

    It needs no state of its own to resume; the two methods say so to a trainer.
    """

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def check_data_settings(batch_size: int, valid_fraction: float) -> None:
    """Raise ValueError for settings out of range, before anything is encoded for them."""
    if batch_size < 1:
        raise ValueError(f"data.batch_size={batch_size} must be at least 1")
    if not 0 <= valid_fraction < 1:
        raise ValueError(f"data.valid_fraction={valid_fraction} must be from 0 to below 1")


def _num_spans(splits: Sequence[Split]) -> int:
    """Of all parts of all splits."""
    return sum(len(part) for split in splits for part in split)


class TokenBatches:
    """Batches of a store, or of a mix of several, as `batches.windows.WindowBatch`.

    A batch holds `batch_size` windows of `context_frames` frames; of shorter clips it holds
    more, which are of like lengths (`batches.buckets`). All processes' batches of all batches that
    are accumulated for a step are one, divided among them: the clips of step n are a function of
    (seed, n) and of how many full windows a step holds. Validation goes through the
    validation clips of all stores once, divided among the processes.

    Args:
        store: the codes.
        context_frames: frames of a full window.
        batch_size: full windows in a batch of a process.
        valid_fraction: share of the clips that is for validation.
        seed: of the order and the crops.
        num_workers: processes that read ahead; 0 reads in this process, which for memory-mapped
            codes is the fastest up to many thousand windows a second.
        pattern: the codebook pattern, or its name, which says what steps a window takes.
        end_token: whether the model predicts end tokens behind clips, which takes steps too.
        vocabulary: what the model is conditioned on. A text is that of a whole clip: those with
            one are used only where they fit into a window.
        text_encoder: of a vocabulary that names one.

    Attributes:
        mix: the stores; a single one is a mix too.
        splits: what of each store is for training, validation and neither.
        conditions: of the clips; None for an unconditional model.
        too_long: clips that are not used, as their text is not that of a window.
        long_texts: clips that are not used, as their text is longer than any of the vocabulary's.
    """

    def __init__(
        self,
        store: TokenStore | Mix,
        context_frames: int,
        batch_size: int = 16,
        valid_fraction: float = 0.05,
        seed: int = 0,
        num_workers: int = 0,
        pattern: str | list[int] | Pattern = "delay",
        end_token: bool = False,
        vocabulary: ConditionVocabulary | None = None,
        text_encoder: TextEncoder | None = None,
    ) -> None:
        super().__init__()  # of a class that this one is mixed into
        check_data_settings(batch_size, valid_fraction)
        self.mix = store if isinstance(store, Mix) else Mix([store])
        self.context_frames = context_frames
        self.batch_size = batch_size
        self.valid_fraction = valid_fraction
        self.seed = seed
        self.num_workers = num_workers
        layout = pattern
        if isinstance(layout, str | list):
            layout = make_pattern(layout, self.mix.num_codebooks)

        @lru_cache
        def steps(frames: int) -> int:
            """The model's steps for a window of so many frames."""
            padded = context_frames if layout.fixed_length else frames
            return layout.num_steps(padded + end_token)

        self.steps = steps
        self.conditions = (
            None
            if vocabulary is None
            else ClipConditions(self.mix.stores, vocabulary, text_encoder)
        )
        self.splits = [split_clips(store, valid_fraction) for store in self.mix.stores]
        self.too_long = self.long_texts = 0
        if vocabulary is not None and vocabulary.text:
            self._keep_whole_clips(vocabulary.text, vocabulary.max_text_len)
        self._batches: tuple[int, TrainingBatches] | None = None

    def _keep_whole_clips(self, text: str, longest: int) -> None:
        """Use no clip with a text that is longer than a window, or whose text is too long."""
        whole = [
            whole_clips(store, split, self.context_frames, text)
            for store, split in zip(self.mix.stores, self.splits, strict=True)
        ]
        readable = [
            without_long_texts(store, split, text, longest)
            for store, split in zip(self.mix.stores, whole, strict=True)
        ]
        self.too_long = _num_spans(self.splits) - _num_spans(whole)
        self.long_texts = _num_spans(whole) - _num_spans(readable)
        self.splits = readable
        for store, split in zip(self.mix.stores, self.splits, strict=True):
            if not len(split.train):
                raise ValueError(
                    f"{store.path} has no clip to train on that is as short as context="
                    f"{self.context_frames / self.mix.frame_rate:g} s, and a text is that of a "
                    f"whole clip; raise context, or cut the recordings"
                )

    @property
    def valid_frames(self) -> int:
        """Validation frames of all stores; without any there is no validation."""
        return sum(int(split.valid["frames"].sum()) for split in self.splits)

    def examples(self, count: int) -> list[dict[str, Any]]:
        """Conditions of the first validation clips; without any, of those trained on."""
        if self.conditions is None:
            return []
        clips = [
            (store, int(clip))
            for part in ("valid", "train")
            for store, split in enumerate(self.splits)
            for clip in getattr(split, part)["clip"][:count]
        ]
        return [self.conditions.values(store, clip) for store, clip in clips[:count]]

    def training_batches(self, parts: int = 1) -> TrainingBatches:
        """The batches of steps that are divided into so many parts. The last ones are kept."""
        if self._batches is None or self._batches[0] != parts:
            batches = TrainingBatches(
                [split.train for split in self.splits],
                self.context_frames,
                self.batch_size * parts,
                self.steps,
                self.seed,
                self.mix.shares,
            )
            self._batches = parts, batches
        return self._batches[1]

    def training_loader(
        self,
        max_steps: int,
        first_step: int = 0,
        accumulate: int = 1,
        rank: int = 0,
        world_size: int = 1,
    ) -> StepLoader:
        """The batches of one process, those of step `first_step` first.

        Args:
            max_steps: of the whole run.
            first_step: at which the training stands.
            accumulate: batches of a step.
            rank: of the process.
            world_size: processes.
        """
        parts = world_size * accumulate
        steps = self.training_batches(parts)

        def batch(n: int) -> NDArray[Any]:
            step, index = divmod(n, accumulate)
            # Every parts-th of a batch sorted by length: all parts have the same work.
            return steps[step][index * world_size + rank :: parts]

        sampler = StepSampler(
            batch, start_batch=first_step * accumulate, num_batches=max_steps * accumulate
        )
        return self._loader(sampler)

    def validation_loader(self, rank: int = 0, world_size: int = 1) -> StepLoader | list[Any]:
        """Each validation clip once, in all processes together; empty where there are none.

        Raises:
            ValueError: there are fewer windows than processes.
        """
        if not self.valid_frames:
            return []
        frames = np.concatenate([split.valid["frames"] for split in self.splits])
        windows = int((-(-frames // self.context_frames)).sum())
        if windows < world_size:
            raise ValueError(
                f"{windows} validation windows are too few for {world_size} processes; raise "
                f"data.valid_fraction={self.valid_fraction}, shorten context, or take fewer "
                "trainer.devices"
            )
        batches = validation_batches(
            [split.valid for split in self.splits],
            self.context_frames,
            self.batch_size,
            self.steps,
            rank,
            world_size,
        )
        return self._loader(batches)

    def _loader(self, batches: Sampler[Any] | Sequence[Any]) -> StepLoader:
        return StepLoader(
            WindowReader(self.mix.stores, self.batch_size, self.context_frames, self.conditions),
            batch_size=None,
            sampler=batches,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            worker_init_fn=ignore_interrupts,
        )


def to_device(batch: WindowBatch, device: torch.device | str) -> WindowBatch:
    """The batch with its tensors on a device."""
    conditions = {name: values.to(device) for name, values in batch["conditions"].items()}
    return {
        "codes": batch["codes"].to(device),
        "lengths": batch["lengths"].to(device),
        "reaches_end": batch["reaches_end"].to(device),
        "conditions": conditions,
        "full": batch["full"],
    }
