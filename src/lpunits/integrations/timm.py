"""timm: :func:`with_lp_pool` gives a network of ``timm.create_model`` a learned global pooling."""

from typing import TypeVar, Unpack

from timm.layers import SelectAdaptivePool2d
from torch import Tensor, nn

from lpunits.orders import OrderOptions
from lpunits.pooling import GlobalLpPool

Model = TypeVar("Model", bound=nn.Module)


class LpAdaptivePool2d(SelectAdaptivePool2d):  # type: ignore[misc]
    r"""The global pooling layer of a network of timm: :class:`~lpunits.GlobalLpPool`.

    .. math:: u_c = \Bigl( \mathrm{mean}_{t} |z_{ct}|^{p_c} \Bigr)^{1/p_c}

    Args:
        channels: Channels of the input.
        flatten: Whether the dimensions of space go away; if not, they stay, with size 1.
        input_fmt: NCHW or NHWC.
        options: Orders, device and dtype, as in :class:`~lpunits.orders.Ordered`.
    """

    def __init__(
        self,
        channels: int,
        flatten: bool = True,
        input_fmt: str = "NCHW",
        **options: Unpack[OrderOptions],
    ) -> None:
        super().__init__(pool_type="avg", flatten=False, input_fmt=input_fmt)
        self.pool_type, self.channels_last = "lp", input_fmt == "NHWC"
        self.pool = GlobalLpPool(channels, keepdim=not flatten, **options)

    def forward(self, x: Tensor) -> Tensor:
        """``(batch, channels, height, width)`` to ``(batch, channels)`` or with 1 x 1 behind."""
        if not self.channels_last:
            return self.pool(x)  # type: ignore[no-any-return]
        pooled = self.pool(x.movedim(-1, 1))
        return pooled.movedim(1, -1) if self.pool.keepdim else pooled  # type: ignore[no-any-return]

    __repr__ = nn.Module.__repr__


def with_lp_pool(model: Model, **options: Unpack[OrderOptions]) -> Model:
    """Replace the global average or max pooling of a network by one with learned orders.

    In place; returns the network. Call it after ``reset_classifier``, which replaces the pooling,
    and before the optimiser is made, so that it gets the orders.

    >>> import timm  # doctest: +SKIP
    >>> net = with_lp_pool(timm.create_model("resnet18", num_classes=10))  # doctest: +SKIP

    Args:
        model: A network with a pooling layer of its own: ResNet, ConvNeXt, EfficientNet, Swin, ...;
            not a ViT, which pools tokens by a function.
        options: Orders, device and dtype, as in :class:`~lpunits.orders.Ordered`.
    """
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, SelectAdaptivePool2d)]
    name, old = found[-1] if len(found) == 1 else ("", None)
    if old is None or old.is_identity() or old.feat_mult() != 1:
        kinds = [m.pool_type for _, m in found]
        raise ValueError(
            "model must have one global pooling layer that keeps the number of channels, got "
            f"{type(model).__name__} with {kinds or 'none'}"
        )
    weight = next(model.parameters())
    flatten = isinstance(old.flatten, nn.Flatten) or getattr(old.pool, "flatten", False)
    channels_last = getattr(old.pool, "dim", None) == (1, 2)
    place: OrderOptions = {"device": weight.device, "dtype": weight.dtype}
    new = LpAdaptivePool2d(
        int(model.num_features),  # type: ignore[arg-type]
        bool(flatten),
        "NHWC" if channels_last else "NCHW",
        **(place | options),
    )
    model.set_submodule(name, new)
    return model
