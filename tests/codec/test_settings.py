from __future__ import annotations

import json

import pytest
import torch

from audiolm.codec import build_model, check_settings
from audiolm.codec.settings import MOST, OPTIONAL, REQUIRED, fewest_numbers

GOOD = {
    "sample_rate": 8000,
    "channels": 1,
    "n_filters": 4,
    "dimension": 8,
    "ratios": [2, 4, 5],
    "n_residual_layers": 1,
    "true_skip": True,
    "compress": 2,
    "lstm": 0,
    "causal": False,
    "norm": "weight_norm",
    "n_q": 2,
    "bins": 16,
}


def test_settings_come_back_complete_and_plain() -> None:
    checked = check_settings({**GOOD, "sample_rate": 8000.0, "ratios": (2, 4, 5)})
    assert checked == {**GOOD, **OPTIONAL}
    assert isinstance(checked["sample_rate"], int)
    json.dumps(checked)


def test_model_is_the_packages_and_has_the_asked_shape() -> None:
    model = build_model(GOOD)
    assert type(model).__module__ == "encodec.model"
    assert model.encoder(torch.zeros(1, 1, 80)).shape == (1, 8, 2)
    assert model.quantizer.n_q == 2 and model.quantizer.bins == 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bins": 100}, ["bins=100", "power of two"]),
        ({"bins": 1}, ["bins=1", "power of two"]),
        ({"channels": 3}, ["channels=3", "1 (mono) or 2 (stereo)"]),
        ({"channels": 0}, ["channels=0", "at least 1"]),
        ({"ratios": []}, ["ratios=[]", "list of strides"]),
        ({"ratios": [2, 0]}, ["ratios=0", "at least 1"]),
        ({"ratios": [100, 100]}, ["10000 samples", "sample_rate=8000"]),
        ({"ratios": "84"}, ["ratios='84'"]),
        ({"n_q": 2.5}, ["n_q=2.5", "whole number"]),
        ({"n_q": float("nan")}, ["n_q=nan"]),
        ({"sample_rate": float("inf")}, ["sample_rate=inf"]),
        ({"n_q": True}, ["n_q=True", "whole number"]),
        ({"lstm": -1}, ["lstm=-1", "at least 0"]),
        ({"causal": "yes"}, ["causal='yes'", "bool"]),
        ({"compress": 8}, ["compress=8", "n_filters=4"]),
        ({"decoder_filters": 1}, ["compress=2", "decoder_filters=1"]),
        ({"decoder_filters": 0}, ["decoder_filters=0", "at least 1"]),
        ({"decoder_residual_layers": 9}, ["decoder_residual_layers=9", "at most 8"]),
        ({"norm": "layer_norm"}, ["norm='layer_norm'", "weight_norm"]),
        ({"norm": "time_group_norm"}, ["time_group_norm", "segment"]),
        ({"segment": 0.101, "bins": 512}, ["segment=0.101", "0.1 s"]),
        ({"segment": 0.01, "bins": 512}, ["2 frames", "0.02 s"]),
        ({"segment": "1", "bins": 512}, ["segment='1'", "seconds"]),
        ({"segment": 1.0, "bins": 256}, ["bins=256", "at least 512"]),
        ({"n_filter": 4}, ["n_filter unknown", "n_filters"]),
    ],
)
def test_wrong_settings_are_one_line_with_value_and_remedy(change: dict, words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        check_settings({**GOOD, **change})
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_missing_settings_are_named() -> None:
    with pytest.raises(ValueError, match="sample_rate missing"):
        check_settings({k: v for k, v in GOOD.items() if k != "sample_rate"})


@pytest.mark.parametrize("key", [*REQUIRED, "segment", "strange", "x" * 300_000])
@pytest.mark.parametrize(
    "value",
    [2**70, 10**400, 1e308, [0] * 100_000, [1] * 100_000, "x" * 100_000, {"a": "\n" * 10**5}],
    ids=lambda value: f"{type(value).__name__}{len(str(value))}",
)
def test_what_no_codec_has_is_a_short_line(key: str, value: object) -> None:
    with pytest.raises(ValueError, match="codec setting") as error:
        check_settings({**GOOD, "bins": 512, key: value})
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("key", MOST)
def test_limits_name_the_setting_and_the_limit(key: str) -> None:
    value = [1] * 11 if key == "ratios" else MOST[key] * 2
    with pytest.raises(ValueError, match=f"setting {key}=.*at most {MOST[key]:,}"):
        check_settings({**GOOD, "bins": 512, key: value})


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"true_skip": False, "n_residual_layers": 3, "compress": 1},
        {"lstm": 2, "ratios": [8, 3, 2, 2], "channels": 2},
        {"lstm": 1, "n_residual_layers": 0, "ratios": [7], "dimension": 3, "n_q": 5, "bins": 64},
        {"lstm": 1, "channels": 2, "decoder_filters": 7, "decoder_residual_layers": 2},
    ],
)
def test_numbers_are_those_of_the_network(change: dict) -> None:
    settings = check_settings({**GOOD, **change})
    counted = {}
    for norm in ("none", "weight_norm"):
        state = build_model({**settings, "norm": norm}).state_dict()
        unused = (".inited", ".cluster_size", ".embed_avg")
        counted[norm] = sum(w.numel() for k, w in state.items() if not k.endswith(unused))
    assert fewest_numbers(settings) == counted["none"] < counted["weight_norm"]
