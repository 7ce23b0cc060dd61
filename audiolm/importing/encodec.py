"""EnCodec in transformers' and in audiocraft's files, as a codec of this project.

audiocraft keeps the names of the package encodec, which are ours.
"""

from __future__ import annotations

from pathlib import Path

from audiolm.codec import EncodecCodec
from audiolm.codec.transformers import make_codec, read_transformers
from audiolm.importing.audiocraft import CODEC_FILE, read_exported
from audiolm.published_files import read_pickle


def read_codec(path: Path, *, dual_mono: bool = False) -> EncodecCodec:
    """The EnCodec in a folder of transformers' or audiocraft's, or in audiocraft's file.

    Args:
        path: the folder, or compression_state_dict.bin.
        dual_mono: whether it is of stereo, each channel encoded alone.

    Raises:
        FileNotFoundError, ValueError: it cannot be read, or is of another kind.
    """
    file = path / CODEC_FILE if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        return read_transformers(path, dual_mono=dual_mono)
    return _from_audiocraft(file, dual_mono)


def _from_audiocraft(path: Path, dual_mono: bool) -> EncodecCodec:
    pointer = read_pickle(path).get("pretrained")
    if pointer is not None:
        raise ValueError(
            f"{path} only names its codec, {pointer}; download that and pass codec_path=DIR"
        )
    tensors, config = read_exported(path)
    config.check(
        {
            "compression_model": "encodec",
            "encodec.autoencoder": "seanet",
            "encodec.quantizer": "rvq",
            "encodec.renormalize": False,
            "seanet.activation": "ELU",
            "seanet.kernel_size": 7,
            "seanet.residual_kernel_size": 3,
            "seanet.last_kernel_size": 7,
            "seanet.dilation_base": 2,
            "seanet.disable_norm_outer_blocks": 0,
            "seanet.decoder.trim_right_ratio": 1.0,
        }
    )
    same = ("n_filters", "dimension", "n_residual_layers", "compress", "lstm")
    settings = {
        **{key: config.get(f"seanet.{key}") for key in same},
        "ratios": config.get("seanet.ratios"),
        "true_skip": config.get("seanet.true_skip"),
        "norm": config.get("seanet.norm"),
        "pad_mode": config.get("seanet.pad_mode"),
        "causal": config.get("seanet.causal"),
        "sample_rate": config.get("encodec.sample_rate"),
        "channels": config.get("seanet.channels"),
        "n_q": config.get("rvq.n_q"),
        "bins": config.get("rvq.bins"),
        "dual_mono": dual_mono,
    }
    return make_codec(settings, tensors, path)
