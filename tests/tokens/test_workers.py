"""Worker processes do not touch what their parent left."""

from __future__ import annotations

import gc
from typing import Any

from torch.utils.data import DataLoader, Dataset

from audiolm.tokens.workers import worker_settings


class Cycle:
    """Garbage that only the collector finds; its end is told."""

    ended: list[str] = []  # noqa: RUF012

    def __init__(self, name: str) -> None:
        self.name, self.itself = name, self

    def __del__(self) -> None:
        Cycle.ended.append(self.name)


class Collecting(Dataset[Any]):
    """What was ended in this process when the collector has run."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> list[str]:
        gc.collect()
        return list(Cycle.ended)


def test_a_workers_collector_leaves_the_parents_objects_alone() -> None:
    Cycle.ended.clear()
    Cycle("before")
    settings = worker_settings(2)
    gc.disable()
    try:
        Cycle("late")  # garbage that is there at the fork
        loader = DataLoader(Collecting(), batch_size=None, collate_fn=list, **settings)
        assert [list(ended) for ended in loader] == [["before"], ["before"]]
    finally:
        gc.enable()
    gc.collect()
    assert Cycle.ended == ["before", "late"]
