"""Order of the candidates, ratios within rounds, and what other load does to the samples."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from audiolm.benchmarks.disturbance import LIMIT, Sample, Stopwatch, busy_seconds, own_seconds
from audiolm.benchmarks.rounds import Candidate, Spread, interleave, measurements

LINUX = pytest.mark.skipif(busy_seconds() is None, reason="reads /proc/stat")


def test_all_are_timed_in_every_round_and_in_turns() -> None:
    calls: list[str] = []
    candidates = [
        Candidate(name, lambda name=name: calls.append(name), 1.0, "things/s") for name in "abc"
    ]
    found = interleave(candidates, 3, "test", show_progress=False)
    assert calls == [*"abc", *"bca", *"cab", *"abc"], "a round to warm up, and three"
    assert [measurement.name for measurement in found] == list("abc")
    assert all(len(measurement.samples) == 3 for measurement in found)


def test_no_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds=0 must be a whole number from 1"):
        interleave([], 0, "test", show_progress=False)


def samples(*seconds: float, disturbed: tuple[int, ...] = ()) -> list[Sample]:
    return [
        Sample(value, 2 * LIMIT if i in disturbed else LIMIT / 2) for i, value in enumerate(seconds)
    ]


def test_a_ratio_is_of_the_same_round() -> None:
    # The machine gets slower and slower, for both alike.
    candidates = [
        Candidate("slow", print, 1.0, "things/s"),
        Candidate("fast", print, 1.0, "things/s", against="slow"),
    ]
    slow, fast = measurements(
        candidates, {"slow": samples(2.0, 4.0, 8.0), "fast": samples(1.0, 2.0, 4.0)}
    )
    assert slow.ratio is None
    assert fast.rate == Spread(0.5, 0.25, 1.0)
    assert fast.ratio == Spread(2.0, 2.0, 2.0)


def test_a_rate_counts_the_work_and_its_limit() -> None:
    candidates = [
        Candidate("limit", print, 100.0, "GFLOP/s"),
        Candidate("step", print, 6.0, "steps/s", limit="limit", cost=5.0),
    ]
    _, step = measurements(candidates, {"limit": samples(0.5), "step": samples(2.0)})
    assert step.rate.median == 3.0
    assert step.share == pytest.approx(3.0 * 5.0 / 200.0)


def test_disturbed_samples_do_not_count_where_others_are() -> None:
    candidates = [
        Candidate("one", print, 1.0, "things/s"),
        Candidate("two", print, 1.0, "things/s", against="one"),
    ]
    one, two = measurements(
        candidates,
        {
            "one": samples(1.0, 9.0, 1.0, disturbed=(1,)),
            "two": samples(0.5, 0.5, 5.0, disturbed=(2,)),
        },
    )
    assert (one.disturbed, two.disturbed) == (1, 1)
    assert one.rate == Spread(1.0, 1.0, 1.0) and two.rate == Spread(2.0, 2.0, 2.0)
    assert two.ratio == Spread(2.0, 2.0, 2.0), "of the first round, in which neither was"
    (all_disturbed,) = measurements(candidates[:1], {"one": samples(1.0, 2.0, disturbed=(0, 1))})
    assert all_disturbed.rate == Spread(0.75, 0.5, 1.0)


def test_unknown_load_is_not_called_a_disturbance() -> None:
    assert not Sample(1.0, None).disturbed


@LINUX
def test_what_this_process_and_its_children_use_is_their_own() -> None:
    before = own_seconds()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert own_seconds() - before >= 0.4
    child = subprocess.Popen([sys.executable, "-c", f"{burn}\nprint(1, flush=True)\ninput()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert child.stdout is not None
    child.stdout.readline()
    assert own_seconds() - before >= 0.65, "a child that lives counts too"
    child.communicate(b"\n")


@LINUX
def test_the_stopwatch_measures_time_and_load() -> None:
    with Stopwatch() as watch:
        time.sleep(0.2)
    assert watch.sample.seconds == pytest.approx(0.2, abs=0.15)
    assert watch.sample.foreign is not None and watch.sample.foreign >= 0
