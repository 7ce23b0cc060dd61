from __future__ import annotations

import json
import math
import shutil
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor

from audiolm.audio import write_wav
from audiolm.codec.settings import build_model
from audiolm.evaluation.codec import baselines, encoding_speed, upsampling_lines
from audiolm.evaluation.codec.alignment import find_delay, shifted
from audiolm.evaluation.codec.baselines import below_4_khz
from audiolm.evaluation.codec.metrics import Metrics, evaluate, intelligibility, perplexities
from audiolm.evaluation.digits import classifier as digit_classifier

from ..conftest import RunScript

TOOL = "tools/evaluate_codec"
RATE = 16000
DIGITS = Path(__file__).resolve().parents[4] / "shared" / "audio" / "digits"


def syllables(seconds: float, seed: int, rate: int = RATE) -> Tensor:
    """Noise (1, N) whose loudness comes and goes four times a second, as that of speech does."""
    generator = torch.Generator().manual_seed(seed)
    count = round(seconds * rate)
    loudness = torch.rand(1, 1, max(2, round(4 * seconds)), generator=generator).square()
    envelope = torch.nn.functional.interpolate(loudness, size=count, mode="linear")[0]
    return 0.3 * envelope * torch.randn(1, count, generator=generator)


class Perfect:
    """A codec that loses nothing, beside which Metrics must find nothing wrong."""

    sample_rate, channels, frame_rate, num_codebooks, codebook_size = RATE, 1, 50.0, 2, 4

    def encode_batch(self, waveforms: list[Tensor]) -> list[Tensor]:
        self.clips = list(waveforms)
        return [torch.arange(w.shape[1]).remainder(4).expand(2, -1) for w in waveforms]

    def decode(self, codes: Tensor, num_samples: int) -> Tensor:
        clip = self.clips.pop(0)
        assert clip.shape[1] == num_samples
        return clip[None]


def test_a_codec_that_loses_nothing_is_found_perfect() -> None:
    kinds = {"speech": [syllables(1.3, 0), syllables(4.0, 1)], "music": [syllables(0.05, 2)]}
    row, books = evaluate(Perfect(), kinds, Metrics(RATE))  # type: ignore[arg-type]
    assert row.kbps == pytest.approx(2 * 2 * 50 / 1000)
    assert set(row.kinds) == {"speech", "music"}
    for measures in row.kinds.values():
        assert measures.si_snr > 100 and measures.mel_distance == 0 and measures.recognised is None
    assert all(book == pytest.approx(4, rel=1e-3) for book in books)
    if find_spec("pystoi"):
        assert row.kinds["speech"].stoi == pytest.approx(1, abs=1e-6)


def test_measures_fall_with_the_noise() -> None:
    clips = [syllables(3.0, 0), syllables(2.0, 1)]
    metrics = Metrics(RATE)
    found = [
        metrics.measure(
            "speech", clips, [c + level * syllables(c.shape[1] / RATE, 9) for c in clips]
        )
        for level in (0.1, 1.0, 10.0)
    ]
    assert found[0].si_snr > found[1].si_snr + 15 > found[2].si_snr + 30
    assert found[0].mel_distance < found[1].mel_distance < found[2].mel_distance
    if find_spec("pystoi"):
        stoi = [m.stoi or 0 for m in found]
        assert 1 > stoi[0] > stoi[1] > stoi[2]


def test_stoi_of_short_clips_is_that_of_all_joined() -> None:
    pytest.importorskip("pystoi")
    whole = syllables(12.0, 0)
    worse = whole + syllables(12.0, 5)
    short = [torch.split(x, RATE // 5, dim=1) for x in (whole, worse)]
    joined = intelligibility([whole], [worse], RATE)
    assert intelligibility(list(short[0]), list(short[1]), RATE) == joined
    assert intelligibility([torch.zeros(1, RATE)], [torch.zeros(1, RATE)], RATE) is None


def test_perplexity_counts_the_codes_in_use() -> None:
    size = 16
    every = torch.arange(size).repeat(10)
    one, two = torch.zeros_like(every), every % 2
    books = perplexities([torch.stack([every, one]), torch.stack([every, two])[:, :80]], size)
    assert books[0] == pytest.approx(size)
    share = 40 / 240  # of code 1 in the second codebook
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert books[1] == pytest.approx(math.exp(entropy))


@pytest.mark.parametrize("rate", [8000, 16000, 24000])
@pytest.mark.parametrize("late", [-0.055, -0.0101, 0.0, 0.0003, 0.021, 0.059])
def test_a_delay_is_found_and_undone(rate: int, late: float) -> None:
    delay = round(late * rate)
    silence = torch.zeros(1, rate // 10)  # so that nothing is lost where the sound comes early
    clips = [
        torch.cat([silence, syllables(seconds, seed, rate)], dim=1)
        for seed, seconds in enumerate((0.02, 0.5, 2.0))
    ]
    moved = [-0.5 * shifted(clip, -delay, clip.shape[1] + rate // 10) for clip in clips]
    assert find_delay(list(zip(clips, moved, strict=True)), rate) == delay
    for clip, late_clip in zip(clips, moved, strict=True):
        assert torch.equal(shifted(late_clip, delay, clip.shape[1]), -0.5 * clip)


def test_a_delay_is_found_where_only_the_loudness_was_kept() -> None:
    """As a vocoder does: the correlation of the waveforms then says nothing."""
    clips = [syllables(3.0, i) for i in range(8)]
    noise = [syllables(3.0, i) for i in range(8)]
    for i, clip in enumerate(noise):
        generator = torch.Generator().manual_seed(100 + i)
        clip *= torch.randint(0, 2, clip.shape, generator=generator) * 2 - 1
    moved = [shifted(clip, -round(0.02 * RATE), clip.shape[1]) for clip in noise]
    assert abs(find_delay(list(zip(clips, moved, strict=True)), RATE) / RATE - 0.02) < 0.004


@pytest.mark.parametrize("name", list(baselines.BASELINES))
@pytest.mark.parametrize("rate", [8000, 16000])
def test_baselines_keep_length_and_loudness(name: str, rate: int, tmp_path: Path) -> None:
    through, programs = baselines.BASELINES[name]
    if any(shutil.which(program) is None for program in programs):
        pytest.skip(f"{programs} not installed")
    time = torch.arange(2 * rate) / rate
    tone = (0.9 * torch.sin(2 * torch.pi * 200 * time) * torch.sin(torch.pi * time).abs())[None]
    for clip in (tone, 3 * tone, tone[:, : rate // 7]):
        decoded, kbps = through(clip, rate, tmp_path)
        assert decoded.shape[1] >= clip.shape[1]
        assert 2 < kbps < 20 if programs else kbps == 0
        aligned = shifted(decoded, find_delay([(clip, decoded)], rate), clip.shape[1])
        if name != "codec2" and clip.shape[1] == tone.shape[1]:
            assert float(aligned.norm() / clip.norm()) == pytest.approx(1, abs=0.2)


def test_baselines_are_kept_and_a_missing_program_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def through(clip: Tensor, sample_rate: int, folder: Path) -> tuple[Tensor, float]:
        calls.append(clip)
        return clip, 1.5

    absent = ("no-such-program",)
    monkeypatch.setattr(baselines, "BASELINES", {"same": (through, ()), "x": (through, absent)})
    kinds = {"speech": [syllables(1.0, 0)]}
    first = baselines.load_baselines(kinds, Metrics(RATE), tmp_path)
    assert "skipped x: no-such-program not found" in capsys.readouterr().err
    assert [row.name for row in first] == ["same"] and first[0].kbps == 1.5 and len(calls) == 1
    assert baselines.load_baselines(kinds, Metrics(RATE), tmp_path) == first and len(calls) == 1
    baselines.load_baselines({"speech": [syllables(1.0, 1)]}, Metrics(RATE), tmp_path)
    assert len(calls) == 2


def tones(count: int, seed: int, rate: int = 8000) -> tuple[list[Tensor], list[int]]:
    """Clips of three classes, which tones of unlike pitch and unlike length are."""
    generator = torch.Generator().manual_seed(seed)
    clips, labels = [], []
    for label in torch.randint(0, 3, (count,), generator=generator).tolist():
        draw = torch.rand(3, generator=generator)
        time = torch.arange(int(rate * (0.2 + 0.3 * draw[0]))) / rate
        pitch = (300, 900, 2000)[label] * (0.9 + 0.2 * draw[1])
        clips.append((0.2 + draw[2]) * torch.sin(2 * torch.pi * pitch * time)[None])
        labels.append(label)
    return clips, labels


def test_the_classifier_learns_tones_at_any_rate_and_gain() -> None:
    clips, labels = tones(60, seed=0)
    trained = [
        digit_classifier.train_classifier(clips, labels, 8000, num_classes=3, epochs=4)
        for _ in range(2)
    ]
    weights = [model.state_dict() for model in trained]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    for rate in (8000, 16000, 24000):
        validation, right = tones(30, seed=1, rate=rate)
        quiet = [0.01 * clip for clip in validation]
        for waveforms in (validation, quiet):
            recognised = digit_classifier.recognise(trained[0], waveforms, rate)
            assert float((recognised == torch.tensor(right)).float().mean()) >= 0.9


def test_the_classifier_does_not_use_what_is_above_4_khz() -> None:
    model = digit_classifier.DigitClassifier().eval()
    clip = syllables(0.5, 0)
    hiss = torch.fft.rfft(syllables(0.5, 1))
    hiss[:, : 4200 * hiss.shape[1] // 8000] = 0
    batches = [
        digit_classifier._batch([x], RATE) for x in (clip, clip + torch.fft.irfft(hiss, 8000))
    ]
    plain, hissing = (model.features(batch) for batch in batches)
    assert float((plain - hissing).abs().mean()) < 0.01


@pytest.fixture
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsampling_lines, "SECONDS", 2.0)
    monkeypatch.setattr(
        encoding_speed, "encoding_speeds", partial(encoding_speed.encoding_speeds, seconds=1.0)
    )


def test_originals_below_4_khz() -> None:
    time = torch.arange(RATE) / RATE
    low, high = (torch.sin(2 * torch.pi * hz * time)[None] for hz in (3000, 5000))
    narrow, _ = below_4_khz(low + high, RATE, Path())
    assert float((narrow - low)[:, 100:-100].abs().max()) < 0.01


@pytest.mark.usefixtures("short_probes")
def test_command_line(make_tiny_codec, tmp_path: Path, run_script: RunScript) -> None:
    codec = make_tiny_codec(sample_rate=8000).save(tmp_path)
    for kind in ("speech", "music"):
        write_wav(tmp_path / "audio" / kind / "a.wav", syllables(2.0, 0), RATE)
    out = tmp_path / "out.json"
    where = ["--audio", str(tmp_path / "audio"), "--cache", str(tmp_path / "cache")]
    command = [str(codec), *where]
    table = run_script(TOOL, *command, "--num-codebooks", "0,1,4", "--out", str(out)).out
    names = ["this codec, no quantization", "this codec, K = 1", "this codec, K = 4", "recordings"]
    assert all(f"| music | {name} |" in table for name in [*names, "recordings below 4 kHz"])
    result = json.loads(out.read_text())
    assert [row["name"] for row in result["rows"]][:4] == names
    assert len(result["perplexities"]) == 4 and result["seconds"] == {"music": 2, "speech": 2}
    recordings = result["rows"][3]["kinds"]["speech"]
    assert recordings["shape_r2"] == 1 and recordings["mel_distance"] == 0
    for lines in result["lines"].values():
        assert len(lines) == 3
        assert all(
            line["frequency"] < 4000 for found in lines.values() for line in found.values() if line
        )
    assert set(result["encoding_speed"]) == {
        "this codec, K = 4",
        "the plain network of audiolm 0.1",
    }

    table = run_script(TOOL, *command, "--kinds", "music").out
    # 5 bits at 8000 / 12 frames a second: not even one codebook is 3.2 kbit/s.
    assert "| music | this codec, K = 1 |" in table and "speech" not in table

    for wrong in (
        [str(tmp_path / "none"), *where],
        [str(codec)],
        [str(codec), "--audio", str(tmp_path / "audio" / "speech")],
        [str(codec), *where, "--num-codebooks", "many"],
        [str(codec), *where, "--num-codebooks", "5"],
        [str(codec), *where, "--digits", str(tmp_path / "audio")],
        [str(codec), *where, "--kinds", "noise"],
        [str(codec), *where, "--texts", str(out)],
        [str(codec), *where, "--texts", f"noise={out}"],
    ):
        done = run_script(TOOL, *wrong)
        assert done.code == 2 and len(done.err.strip().splitlines()) == 1


@pytest.mark.usefixtures("short_probes")
def test_word_errors_of_a_checkpoint_without_codebooks(
    make_tiny_codec,
    tmp_path: Path,
    run_script: RunScript,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pocketsphinx")
    monkeypatch.setattr(baselines, "BASELINES", {})
    codec = make_tiny_codec(sample_rate=8000)
    state = build_model(codec.settings).state_dict()
    checkpoint = {
        "state_dict": {f"model.{name}": weight for name, weight in state.items()},
        "hyper_parameters": {"settings": codec.settings},
        "audiolm_codec_format": 2,
    }
    torch.save(checkpoint, tmp_path / "last.ckpt")
    write_wav(tmp_path / "audio" / "noise" / "a.wav", syllables(1.0, 0), RATE)
    texts = "file_name,text\na.wav,press one\n"
    (tmp_path / "audio" / "noise" / "metadata.csv").write_text(texts)
    out = tmp_path / "out.json"
    where = ["--audio", str(tmp_path / "audio"), "--cache", str(tmp_path / "cache")]
    done = run_script(TOOL, str(tmp_path / "last.ckpt"), *where, "--out", str(out))
    assert "| noise | this codec, no quantization | - |" in done.out
    result = json.loads(out.read_text())
    assert result["words"] == {"noise": 2} and result["perplexities"] == []
    assert all(row["kinds"]["noise"]["word_error_rate"] > 0 for row in result["rows"])


@pytest.mark.skipif(not DIGITS.is_dir(), reason="no real digits beside the checkout")
def test_real_digits_are_found() -> None:
    validation = digit_classifier.load_digits(DIGITS, digit_classifier.VALIDATION_TAKES)
    assert len(validation) == 300 and {digit.label for digit in validation} == set(range(10))
    assert not {digit.path for digit in validation} & {
        digit.path for digit in digit_classifier.load_digits(DIGITS, [10, 11])
    }
