"""Sentence Transformers: :class:`LpPooling`, from the embeddings of tokens to that of a sentence.

A saved model names this module, so that it is loaded by
``SentenceTransformer(path, trust_remote_code=True)``, as that library asks for all modules which
are not its own.
"""

import math
from typing import Any, Self

import torch
from sentence_transformers.base.modules import Module
from torch import Tensor

from lpunits.functional import lp_pool
from lpunits.pooling import LpPool
from lpunits.segments import segment_lp_pool


class LpPooling(Module):  # type: ignore[misc]
    r"""Pool the tokens of a sentence by a mean of learned order; padding counts for nothing.

    .. math:: u = \mathrm{lp}(\max(z, 0)) - \mathrm{lp}(\max(-z, 0))

    Embeddings have signs, which a norm would lose: positive and negative values are pooled apart.
    At order 1 this is mean pooling. ``order=1.0, order_range=(0.5, 8.0)`` begins as a model that
    was trained with mean pooling, and learns from there.

    >>> tokens = {"token_embeddings": torch.tensor([[[3.0, -1.0], [1.0, 0.0], [9.0, 9.0]]]),
    ...           "attention_mask": torch.tensor([[1, 1, 0]])}
    >>> LpPooling(2, order=1.0)(tokens)["sentence_embedding"]
    tensor([[ 2.0000, -0.5000]], grad_fn=<...>)

    Args:
        embedding_dimension: Size of the embeddings of tokens and of the sentence.
        order: Where orders start: a number, one per dimension (a list), or a pair to draw from.
        learn_order: Whether they are learned.
        shared: Whether one order serves all dimensions.
        order_range: Where orders may go.
        signed: Whether positive and negative values are pooled apart; if not, absolute values are.
        include_prompt: Whether the tokens of a prompt count.
    """

    config_keys = (
        "embedding_dimension",
        "order",
        "learn_order",
        "shared",
        "order_range",
        "signed",
        "include_prompt",
    )

    def __init__(
        self,
        embedding_dimension: int,
        order: Any = 3.0,
        learn_order: bool = True,
        shared: bool = False,
        order_range: tuple[float, float] = (1.0, math.inf),
        signed: bool = True,
        include_prompt: bool = True,
    ) -> None:
        super().__init__()
        # A config.json has lists for tuples, and "inf", which is not a number of JSON.
        if isinstance(order, list):
            order = [float(p) for p in order]
        low, high = map(float, order_range)
        self.order_range = (low, high)
        self.pool = LpPool(
            embedding_dimension,
            dim=1,
            order=order,
            learn_order=learn_order,
            shared=shared,
            order_range=self.order_range,
        )
        self.embedding_dimension = embedding_dimension
        self.learn_order, self.shared = learn_order, shared
        self.signed, self.include_prompt = signed, include_prompt

    def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Add ``sentence_embedding`` to the features, from ``token_embeddings``."""
        z = features["token_embeddings"]
        parts = (z.relu(), (-z).relu()) if self.signed else (z,)
        prompt = 0 if self.include_prompt else _length(features.get("prompt_length", 0))
        if "cu_seq_lens_q" in features:  # sentences one behind the other, without padding
            offsets = features["cu_seq_lens_q"]
            starts = offsets[:-1].repeat_interleave(offsets.diff())
            counts = torch.arange(z.shape[1], device=z.device) - starts >= prompt
            weight = counts.to(z.dtype).unsqueeze(-1) if prompt else None
            pooled = [
                segment_lp_pool(part[0], self.pool.order, offsets=offsets, weight=weight)
                for part in parts
            ]
        else:
            mask = features.get("attention_mask")
            if mask is None or mask.shape[-1] != z.shape[1]:
                mask = torch.ones(z.shape[:2], device=z.device, dtype=torch.bool)
            # The tokens are numbered from 1, wherever the padding is.
            mask = (mask.bool() & (mask.bool().cumsum(1) > prompt)).unsqueeze(-1)
            pooled = [lp_pool(part, self.pool.order, dim=1, mask=mask) for part in parts]
        features["sentence_embedding"] = pooled[0] - pooled[1] if self.signed else pooled[0]
        return features

    def get_embedding_dimension(self) -> int:
        """The size of the embedding of a sentence."""
        return self.embedding_dimension

    def get_config_dict(self) -> dict[str, Any]:
        """What ``config.json`` holds: the arguments, with the orders of now."""
        orders = self.pool.order.tolist()
        order = [_plain(p) for p in (orders[:1] if self.shared else orders)]
        values = {
            "order": order[0] if len(set(order)) == 1 else order,
            "order_range": [_plain(p) for p in self.order_range],
        }
        return {name: values.get(name, getattr(self, name, None)) for name in self.config_keys}

    def save(
        self, output_path: str, *args: Any, safe_serialization: bool = True, **options: Any
    ) -> None:
        """Write ``config.json``, and the orders to their last digit as the weights."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> Self:
        """Read what :meth:`save` wrote, from a folder or from the hub."""
        names = ("token", "cache_folder", "revision", "local_files_only")
        where = {"subfolder": subfolder} | {n: options[n] for n in names if n in options}
        config = cls.load_config(model_name_or_path, **where)
        if isinstance(config.get("order"), str):
            config["order"] = float(config["order"])
        made = cls(**config)
        return cls.load_torch_weights(model_name_or_path, model=made, **where)  # type: ignore[no-any-return]


def _length(prompt: int | Tensor) -> int:
    """A number, or a tensor with the same number for each sentence."""
    return int(prompt.flatten()[0]) if isinstance(prompt, Tensor) else int(prompt)


def _plain(p: float) -> float | str:
    """A value for strict JSON, which has no infinity."""
    return p if math.isfinite(p) else str(p)
