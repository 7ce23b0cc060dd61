from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from audiolm.audio import AudioError, find_audio_files, read_audio, read_info, stream_audio
from audiolm.audio.formats.ffmpeg import has_ffmpeg
from audiolm.audio.formats.pyav import has_pyav

from ..hostile import Case, build
from ..test_docs import ROOT, table

TIMEOUT = 120  # s; all files together take a few

# Reads files in a process of its own: nothing hangs or ends the tests, and its memory is measured.
READER = """
import pickle, resource, sys
from importlib import import_module
from audiolm.audio import AudioError, read_audio

first, paths, with_pyav = pickle.load(sys.stdin.buffer)
if not with_pyav:
    import_module("audiolm.audio.formats.open").has_pyav = lambda: False
for path in first:  # loads all libraries
    read_audio(path)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
results = []
for path in paths:
    try:
        samples, rate = read_audio(path)
        results.append((samples.numpy(), rate, ""))
    except AudioError as error:
        results.append((None, 0, str(error)))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
held = sum(samples.nbytes for samples, _, _ in results if samples is not None)
pickle.dump((results, (after - before) * 1024 - held), sys.stdout.buffer)
"""


class Pack(NamedTuple):
    folder: Path
    cases: list[Case]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    folder = tmp_path_factory.mktemp("hostile")
    return Pack(folder, build(folder))


def read_apart(pack: Pack, cases: list[Case], with_pyav: bool) -> tuple[list[Any], float]:
    """Samples, rate and refusal of each case, and the bytes by which the process grew for them."""
    first = [pack.folder / "good" / "a.wav"]
    if has_pyav():
        first.append(pack.folder / "containers" / "aac.m4a")
    paths = [pack.folder / case.path for case in cases]
    done = subprocess.run(
        [sys.executable, "-c", READER],
        input=pickle.dumps((first, paths, with_pyav)),
        stdout=subprocess.PIPE,
        timeout=TIMEOUT,
        check=True,
    )
    results: tuple[list[Any], float] = pickle.loads(done.stdout)
    return results


def faults(pack: Pack, cases: list[Case], results: list[Any]) -> list[str]:
    """What is not as the cases say."""
    found = []
    for case, (samples, rate, refusal) in zip(cases, results, strict=True):
        name = str(case.path)
        if case.samples is None:
            where, _, reason = refusal.partition(": ")
            if (
                not re.search(case.reason, reason)
                or "\n" in refusal
                or str(pack.folder) not in where
            ):
                found.append(f"{name!r} gave {refusal!r}, not {case.reason!r}")
            continue
        length = case.samples.shape[1]
        if samples is None:
            found.append(f"{name!r} was refused: {refusal}")
        elif rate != case.rate or len(samples) != len(case.samples):
            found.append(f"{name!r} has {len(samples)} channels of {rate} Hz")
        elif not length <= samples.shape[1] <= length + case.padding:
            found.append(f"{name!r} has {samples.shape[1]} samples, not {length}")
        elif not (difference := np.abs(samples[:, :length] - case.samples).max()) <= case.tolerance:
            found.append(f"{name!r} is {difference} off")
    return found


def test_the_pack_is_large_and_tells_apart(pack: Pack) -> None:
    assert len(pack.cases) >= 60
    assert len({case.path for case in pack.cases}) == len(pack.cases)
    contents = [case.samples.tobytes() for case in pack.cases if case.samples is not None]
    assert len(set(contents)) == len(contents)


def test_every_file_is_served_right_or_skipped_with_its_reason(pack: Pack) -> None:
    results, grown = read_apart(pack, pack.cases, with_pyav=True)
    assert faults(pack, pack.cases, results) == []
    # Headers promise up to 2**62 bytes.
    assert grown < 100e6


def test_every_reason_stands_in_the_documentation(pack: Pack) -> None:
    known = tuple(row[0] for row in table(ROOT / "docs" / "skipped.md", "Reasons"))
    met = set()
    for case in pack.cases:
        if not case.served:
            with pytest.raises(AudioError) as caught:
                read_audio(pack.folder / case.path)
            reason = caught.value.reason.removeprefix("damaged or joined of several: ")
            begins = [word for word in known if reason.startswith(word)]
            assert begins, reason
            met.update(begins)
    assert met >= set(known) - ({"no audio track"} if not has_pyav() else set())


@pytest.mark.skipif(not (has_pyav() and has_ffmpeg()), reason="needs PyAV and ffmpeg")
def test_the_ffmpeg_program_gives_the_same(pack: Pack) -> None:
    # A choice of them: two processes a file take their time.
    cases = [case for case in pack.cases if case.path.parts[0] == "hostile"]
    cases += [case for case in pack.cases if case.path.parts[0] == "containers"][::5]
    cases += [case for case in pack.cases if case.path.parts[0] == "containers_cut"][3::8]
    assert len(cases) >= 20
    results, _ = read_apart(pack, cases, with_pyav=False)
    assert faults(pack, cases, results) == []


def test_finding_lists_all_files_and_no_other(pack: Pack) -> None:
    listed = {pack.folder / case.path for case in pack.cases if case.listed}
    assert set(find_audio_files(pack.folder)) == listed


def test_blocks_and_length_of_all_that_is_served(pack: Pack) -> None:
    for case in pack.cases:
        if case.samples is None or case.trait == "short":
            continue
        path = pack.folder / case.path
        whole, _ = read_audio(path, 24000, 1)
        blocks = list(stream_audio(path, 24000, 1, block_duration=0.3))
        assert torch.equal(torch.cat(blocks, dim=1), whole)
        info = read_info(path)
        assert (info.sample_rate, info.channels) == (case.rate, len(case.samples))
        assert info.num_samples == read_audio(path)[0].shape[1]


def test_refusals_are_alike_in_blocks(pack: Pack) -> None:
    for case in pack.cases:
        if case.samples is None:
            with pytest.raises(AudioError) as caught:
                list(stream_audio(pack.folder / case.path, None, 1, block_duration=0.1))
            assert re.search(case.reason, caught.value.reason)
