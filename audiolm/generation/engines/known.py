"""What the native and the compiled step know of a model, each written for these parts alone.

Both state the forward pass of `Transformer` and `Block` anew. Of a part that is not among these,
or has something that these have not, they would compute another model and say nothing: so it is
refused by name.
"""

from __future__ import annotations

from torch import nn

from audiolm.model.attention import CausalSelfAttention, CrossAttention
from audiolm.model.feedforward import FeedForward, GatedFeedForward
from audiolm.model.language_model import AudioLM
from audiolm.model.norm import RMSNorm
from audiolm.model.positions import (
    CosineSinePositions,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
)
from audiolm.model.transformer import Block, Transformer

KNOWN: frozenset[type[nn.Module]] = frozenset(
    {
        AudioLM,
        Transformer,
        Block,
        CausalSelfAttention,
        CrossAttention,
        GatedFeedForward,
        FeedForward,
        RMSNorm,
        nn.LayerNorm,
        RotaryPositions,
        SinusoidalPositions,
        CosineSinePositions,
        LearnedPositions,
        nn.Embedding,
        nn.Linear,
        nn.Dropout,  # nothing, in eval mode
        nn.ModuleList,
    }
)
"""Exactly these: a class derived from one of them may compute something else."""


def check_known(model: AudioLM, engine: str) -> None:
    """Raise ValueError for a model with a part that the engine does not know.

    The conditioner is not looked at: every engine has the model itself read the conditions.
    """
    for name, module in model.named_modules():
        if name == "conditioner" or name.startswith("conditioner."):
            continue
        what = None
        if type(module) not in KNOWN:
            what = type(module).__name__
        elif isinstance(module, nn.Linear) and module.bias is not None:
            what = "a bias"
        elif isinstance(module, nn.LayerNorm) and module.bias is None:
            what = "a LayerNorm without bias"
        elif module._forward_hooks or module._forward_pre_hooks:
            what = "a hook"
        elif "forward" in vars(module):
            what = "a forward method of its own"
        if what is not None:
            raise ValueError(
                f"engine={engine} does not know {what}, which the model has as {name or 'itself'}; "
                f"pass engine=eager"
            )
    trunk = model.transformer
    norms = [module for module in trunk.modules() if isinstance(module, RMSNorm | nn.LayerNorm)]
    if len({(type(norm), norm.eps) for norm in norms}) > 1:
        raise ValueError(
            f"engine={engine} takes one kind of norm and one eps for all, and this model's differ; "
            f"pass engine=eager"
        )
    if len({(type(block.attention.rotary), type(block.feedforward)) for block in trunk.blocks}) > 1:
        raise ValueError(
            f"engine={engine} takes the same positions and feed-forward in all blocks, and this "
            f"model's differ; pass engine=eager"
        )


def is_known(model: AudioLM) -> bool:
    """Whether `check_known` lets the model pass."""
    try:
        check_known(model, "compiled")
    except ValueError:
        return False
    return True
