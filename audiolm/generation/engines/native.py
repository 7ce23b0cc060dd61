"""The decode step in C++, for CPUs: `decode_step.cpp` with a model's weights.

Letters: B batch rows, K codebooks, V' predicted ids of a codebook, D model width, H heads, E head
width, L length of a text.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_float, c_int64, c_void_p

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from audiolm.generation.engines.build import load_library
from audiolm.generation.engines.known import check_known
from audiolm.generation.engines.rounding import WEIGHTS, quantise_rows
from audiolm.model.cache import KeyValueCache
from audiolm.model.conditioning import Conditions
from audiolm.model.feedforward import GatedFeedForward
from audiolm.model.language_model import AudioLM
from audiolm.model.norm import RMSNorm


class _Matrix(Structure):
    _fields_ = (("weights", c_void_p), ("scales", c_void_p))


class _Norm(Structure):
    _fields_ = (("weight", c_void_p), ("bias", c_void_p))


class _Layer(Structure):
    _fields_ = (
        ("attention_norm", _Norm),
        ("feedforward_norm", _Norm),
        ("qkv", _Matrix),
        ("out", _Matrix),
        ("gate", _Matrix),
        ("value", _Matrix),
        ("feedforward_out", _Matrix),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("cross_norm", _Norm),
        ("cross_query", _Matrix),
        ("cross_out", _Matrix),
        ("text_keys", c_void_p),
        ("text_values", c_void_p),
    )


class _Model(Structure):
    _fields_ = (
        ("kind", c_int64),
        ("codebooks", c_int64),
        ("codes", c_int64),
        ("width", c_int64),
        ("layers", c_int64),
        ("heads", c_int64),
        ("feedforward", c_int64),
        ("capacity", c_int64),
        ("text_len", c_int64),
        ("epsilon", c_float),
        ("embedding", c_void_p),
        ("layer", POINTER(_Layer)),
        ("last_norm", _Norm),
        ("head", _Matrix),
    )


class NativeDecodeStep:
    """Reads one step of B rows, whose keys and values `caches` hold; gives the next one's logits.

    The same function as `model.extend`, but for the order of additions. A row's logits are the
    same bits in every batch.

    Args:
        model: that of `packed`.
        packed: its weights.
        caches: one a block, of B rows; filled as far as their `length` says.
        conditions: of the B rows; None where the model has none.
    """

    def __init__(
        self,
        model: AudioLM,
        packed: PackedWeights,
        caches: list[KeyValueCache],
        conditions: Conditions | None,
    ) -> None:
        self.functions = load_library()
        self.functions.scratch_size.restype = c_int64
        self.packed = packed
        self.caches = caches
        trunk = model.transformer
        rows, capacity = len(caches[0].keys), caches[0].max_steps
        self.layers = (_Layer * len(caches))(*self.packed.layers)
        for layer, cache in zip(self.layers, caches, strict=True):
            layer.keys, layer.values = cache.keys.data_ptr(), cache.values.data_ptr()
        self.added = None if conditions is None else conditions.added.contiguous()
        self.text_used: Tensor | None = None
        self.text: list[Tensor] = []  # what the structures point at
        if conditions is not None and conditions.hidden is not None:
            self._point_at_text(conditions, conditions.hidden)
        self.model = _Model(
            kind=WEIGHTS.index(packed.weights),
            codebooks=model.num_codebooks,
            codes=model.num_outputs,
            width=model.embedding.embedding_dim,
            layers=len(self.layers),
            heads=trunk.num_heads,
            feedforward=trunk.blocks[0].feedforward.out_proj.in_features,
            capacity=capacity,
            text_len=self.text[0].shape[2] if self.text else 0,
            epsilon=trunk.last_norm.eps,
            embedding=self.packed.embedding,
            layer=self.layers,
            last_norm=self.packed.last_norm,
            head=self.packed.head,
        )
        self.threads = torch.get_num_threads()
        size = self.functions.scratch_size(
            ctypes.byref(self.model), c_int64(rows), c_int64(self.threads)
        )
        self.scratch = torch.zeros(size)
        self.logits_shape = (rows, model.num_codebooks, model.num_outputs)
        # Where a step stands is either added to its input or rotates its queries and keys.
        self.positions = trunk.positions
        self.rotary = trunk.blocks[0].attention.rotary
        self.origin = torch.zeros(1, 1, model.embedding.embedding_dim)

    def _point_at_text(self, conditions: Conditions, hidden: Tensor) -> None:
        self.text_used = (~hidden).sum(dim=-1).flatten()
        if bool((hidden[..., :-1] & ~hidden[..., 1:]).any()):
            raise ValueError(
                "engine=native takes padding at the end of a condition, and this one has some "
                "before it; pass engine=eager"
            )
        for layer, pair in zip(self.layers, conditions.memory, strict=True):
            keys, values = (tensor.contiguous() for tensor in pair)
            self.text += [keys, values]
            layer.text_keys, layer.text_values = keys.data_ptr(), values.data_ptr()

    def __call__(self, codes: Tensor) -> Tensor:
        """Logits (B, K, V') after codes (B, K), the next step of the caches."""
        past, capacity = self.caches[0].length, self.caches[0].max_steps
        assert codes.shape == self.logits_shape[:2] and (past < capacity or self.caches[0].ring)
        codes = codes.contiguous()
        position = None if self.positions is None else self.positions(self.origin, past)
        angles = (None, None) if self.rotary is None else self.rotary.angles(past, 1)
        logits = torch.empty(self.logits_shape)
        self.functions.decode_step(
            ctypes.byref(self.model),
            c_int64(len(codes)),
            _pointer(codes),
            _pointer(position),
            _pointer(self.added),
            _pointer(self.text_used),
            _pointer(angles[0]),
            _pointer(angles[1]),
            c_int64(past % capacity),
            c_int64(min(past + 1, capacity)),
            _pointer(self.scratch),
            _pointer(logits),
            c_int64(self.threads),
        )
        for cache in self.caches:
            cache.length += 1
        return logits


def check_native(model: AudioLM) -> None:
    """Raise ValueError for a model that the native step cannot compute."""
    check_known(model, "native")
    weight = model.heads.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        raise ValueError(
            f"engine=native computes on the CPU in float32, and the model is on {weight.device} "
            f"in {weight.dtype}; pass engine=eager"
        )


class PackedWeights:
    """A model's weights in the layout of `decode_step.cpp`, and the structures that point there.

    They are copies: what is trained later does not reach them.

    Args:
        model: on the CPU, in float32, its matrices rounded to `weights`.
        weights: what the matrices are packed as; see `rounding.round_weights`.

    Raises:
        ValueError: where the library cannot be built, or for a model in another type or on another
        device.
    """

    def __init__(self, model: AudioLM, weights: str) -> None:
        check_native(model)
        self.weights = weights
        self.lanes = load_library().lanes()
        self.kept: list[Tensor] = []  # what the structures point at
        trunk = model.transformer
        self.embedding = self._copy(model.embedding.weight)
        self.last_norm = self._norm(trunk.last_norm)
        self.head = self._matrix(model.heads.weight)
        self.layers = []
        for block in trunk.blocks:
            inner = block.feedforward.in_proj.weight
            parts = inner.chunk(2) if isinstance(block.feedforward, GatedFeedForward) else [inner]
            gate, value = [*map(self._matrix, parts), _Matrix()][:2]
            layer = _Layer(
                self._norm(block.attention_norm),
                self._norm(block.feedforward_norm),
                self._matrix(block.attention.qkv_proj.weight),
                self._matrix(block.attention.o_proj.weight),
                gate,
                value,
                self._matrix(block.feedforward.out_proj.weight),
            )
            if block.cross_norm is not None and block.cross_attention is not None:
                layer.cross_norm = self._norm(block.cross_norm)
                layer.cross_query = self._matrix(block.cross_attention.q_proj.weight)
                layer.cross_out = self._matrix(block.cross_attention.o_proj.weight)
            self.layers.append(layer)

    def _copy(self, weight: Tensor) -> int:
        return self._keep(weight.detach().clone(memory_format=torch.contiguous_format))

    def _norm(self, norm: RMSNorm | nn.LayerNorm) -> _Norm:
        bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
        return _Norm(self._copy(norm.weight), None if bias is None else self._copy(bias))

    def _keep(self, tensor: Tensor) -> int:
        self.kept.append(tensor)
        return tensor.data_ptr()

    def _matrix(self, matrix: Tensor) -> _Matrix:
        matrix = matrix.detach()
        if self.weights == "int8":
            integers, scales = quantise_rows(matrix)
            return _Matrix(self._keep(self._blocks(integers, 4)), self._keep(scales))
        if self.weights == "bfloat16":
            return _Matrix(self._keep(self._blocks(matrix.bfloat16(), 2)))
        return _Matrix(self._keep(self._blocks(matrix, 1)))

    def _blocks(self, matrix: Tensor, numbers: int) -> Tensor:
        """In the order of `struct Matrix`, with so many `numbers` in a word of 4 bytes."""
        rows, columns = matrix.shape
        filled = F.pad(matrix, (0, -columns % (self.lanes * numbers), 0, -rows % 4))
        parts = filled.view(-(-rows // 4), 4, -1, numbers, self.lanes)
        # Not `contiguous`, which does not copy a matrix that lies in this order already.
        return parts.permute(0, 2, 1, 4, 3).clone(memory_format=torch.contiguous_format)


def _pointer(tensor: Tensor | None) -> c_void_p:
    return c_void_p(None if tensor is None else tensor.data_ptr())
