"""Other ways to serve windows of codes: as one would write them oneself, and of other packages.

Each gives batches without end, at random crops of the clips, without other processes.

Letters: B batch, K codebooks, T codec frames.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

Batches = Iterator[tuple[Tensor, Tensor]]
"""codes (B, K, T) int64, padded with 0, and lengths (B,)."""


class Clips(NamedTuple):
    """The codes to serve. folder: of their store. rows: (frames of all, K), one clip after the
    other. offsets, frames: of each clip in them."""

    folder: Path
    rows: NDArray[Any]
    offsets: NDArray[np.int64]
    frames: NDArray[np.int64]

    def codes(self, clip: int) -> NDArray[Any]:
        """(T, K) of a clip."""
        first = self.offsets[clip]
        return self.rows[first : first + self.frames[clip]]


class _Cropped(Dataset[Tensor]):
    """Crops (K, T) of clips that `read` gives as (T, K)."""

    def __init__(
        self, read: Callable[[int], NDArray[Any]], frames: NDArray[np.int64], context: int
    ) -> None:
        self.read, self.frames, self.context = read, frames, context
        self.rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, clip: int) -> Tensor:
        return _crop(self.read(clip), self.context, self.rng)


def _crop(codes: NDArray[Any], context: int, rng: np.random.Generator) -> Tensor:
    """A random crop (K, T) of codes (T, K)."""
    start = int(rng.integers(max(0, len(codes) - context) + 1))
    return torch.from_numpy(codes[start : start + context].T.astype(np.int64))


def _padded(crops: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([crop.shape[1] for crop in crops])
    codes = torch.zeros(len(crops), crops[0].shape[0], int(lengths.max()), dtype=torch.int64)
    for row, crop in zip(codes, crops, strict=True):
        row[:, : crop.shape[1]] = crop
    return codes, lengths


def _endless(dataset: Dataset[Tensor], batch_size: int) -> Batches:
    loader = DataLoader(dataset, batch_size, shuffle=True, drop_last=True, collate_fn=_padded)
    while True:
        yield from loader


def memmap_dataset(clips: Clips, context: int, batch_size: int, folder: Path) -> Batches:
    """One .npy file, memory-mapped, and a Dataset of its clips: the plain way."""
    file = folder / f"{clips.folder.name}.npy"
    np.save(file, clips.rows)
    rows = np.load(file, mmap_mode="r")
    mapped = clips._replace(rows=rows)
    return _endless(_Cropped(mapped.codes, clips.frames, context), batch_size)


def npy_files(clips: Clips, context: int, batch_size: int, folder: Path) -> Batches:
    """A .npy file a clip."""
    files = folder / "npy"
    files.mkdir()
    for clip in range(len(clips.frames)):
        np.save(files / f"{clip}.npy", clips.codes(clip))

    def read(clip: int) -> NDArray[Any]:
        codes: NDArray[Any] = np.load(files / f"{clip}.npy")
        return codes

    return _endless(_Cropped(read, clips.frames, context), batch_size)


def hugging_face(clips: Clips, context: int, batch_size: int, folder: Path) -> Batches:
    """Hugging Face datasets, from disk, codes as bytes: several times faster than as arrays."""
    import datasets

    rows = {"codes": [clips.codes(clip).tobytes() for clip in range(len(clips.frames))]}
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(rows).save_to_disk(folder / "hugging_face")
    loaded = datasets.load_from_disk(str(folder / "hugging_face"))
    dtype, codebooks = clips.rows.dtype, clips.rows.shape[1]

    def read(clip: int) -> NDArray[Any]:
        return np.frombuffer(loaded[clip]["codes"], dtype).reshape(-1, codebooks)

    return _endless(_Cropped(read, clips.frames, context), batch_size)


def webdataset(clips: Clips, context: int, batch_size: int, folder: Path) -> Batches:
    """A tar file of .npy files, read from front to back and shuffled in a buffer."""
    import webdataset as wds

    tar = folder / "clips.tar"
    with wds.TarWriter(str(tar)) as writer:
        for clip in range(len(clips.frames)):
            file = io.BytesIO()
            np.save(file, clips.codes(clip))
            writer.write({"__key__": f"{clip:09d}", "npy": file.getvalue()})
    rng = np.random.default_rng(0)
    dataset = (
        wds.WebDataset(str(tar), shardshuffle=False)
        .shuffle(100)
        .decode()
        .map(lambda sample: _crop(sample["npy"], context, rng))
        .batched(batch_size, collation_fn=_padded, partial=False)
        .repeat()
    )
    return iter(dataset)


def litdata(clips: Clips, context: int, batch_size: int, folder: Path) -> Batches:
    """LitData's chunks, streamed from the local folder."""
    import litdata as ld
    from litdata.streaming.writer import BinaryWriter

    chunks = folder / "litdata"
    writer = BinaryWriter(str(chunks), chunk_bytes=2**26)
    for clip in range(len(clips.frames)):
        writer[clip] = np.ascontiguousarray(clips.codes(clip))
    writer.done()
    writer.merge()
    rng = np.random.default_rng(0)

    class Crops(ld.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Tensor:
            return _crop(super().__getitem__(index), context, rng)

    loader = ld.StreamingDataLoader(
        Crops(str(chunks), shuffle=True, drop_last=True, max_cache_size="4GB"),
        batch_size=batch_size,
        collate_fn=_padded,
    )
    while True:
        yield from loader


PEERS: dict[str, Callable[[Clips, int, int, Path], Batches]] = {
    "a .npy file a clip": npy_files,
    "Hugging Face datasets": hugging_face,
    "webdataset": webdataset,
    "LitData": litdata,
}
"""Those besides `memmap_dataset`; they raise ImportError where their package is not installed."""
