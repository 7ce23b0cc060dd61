"""Models that others published, as this project's own; see `musicgen` for what can be read.

transformers' folder   config.json, model.safetensors
audiocraft's folder    state_dict.bin, compression_state_dict.bin
    -> `MusicGen`, by the names that transformers gives its weights
    -> `ImportedModel`: the weights and settings of an `AudioLM`, its codec and its text encoder
    -> a model's folder (`write_imported`)
"""

from audiolm.importing.convert import ImportedModel, import_model, write_imported

__all__ = ["ImportedModel", "import_model", "write_imported"]
