"""Checks of arguments: one sentence names the argument, what was given and what is expected."""

import math
from collections.abc import Collection, Sequence
from numbers import Real

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

_COMMON = (Tensor, nn.Parameter, type(None))


def check_floating(name: str, value: object) -> None:
    """Raise TypeError unless the argument ``name`` is a floating-point tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a floating-point tensor, got {type(value).__name__}")
    if value.is_nested:
        raise TypeError(f"{name} must be an ordinary tensor, got a nested one")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got dtype {value.dtype}")


def check_sizes(**sizes: int) -> None:
    """Raise TypeError or ValueError unless every argument given by name is a positive integer."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"{name} must be a positive integer, got {size!r}")
        if size < 1:
            raise ValueError(f"{name} must be a positive integer, got {size}")


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise ValueError unless the value is one of several."""
    if value not in tuple(choices):
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_device(name: str, t: Tensor, z: Tensor) -> None:
    """Raise ValueError unless t is where z is."""
    if t.device != z.device:
        raise ValueError(f"{name} must be on the device of z, {z.device}, got {t.device}")


def check_like_z(name: str, t: Tensor, z: Tensor) -> None:
    """Raise ValueError unless t broadcasts to z, on its device."""
    if not _broadcasts(t.shape, z.shape):
        raise ValueError(
            f"{name} must broadcast to the shape {tuple(z.shape)} of z, "
            f"got the shape {tuple(t.shape)}"
        )
    check_device(name, t, z)


def checked_dim(shape: torch.Size, dim: int) -> int:
    """The dimension, counted from the front."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TypeError(f"dim must be an integer, got {dim!r}")
    if not -len(shape) <= dim < len(shape):
        raise ValueError(
            f"dim must be one of the {len(shape)} dimensions of z, which has the shape "
            f"{tuple(shape)}, got {dim}"
        )
    return dim % len(shape)


def checked_dims(shape: torch.Size, dim: int | Sequence[int]) -> tuple[int, ...]:
    """The dimensions to pool, from the front, in ascending order."""
    given = (dim,) if isinstance(dim, int) else tuple(dim) if isinstance(dim, Sequence) else None
    if given is None or not all(isinstance(d, int) and not isinstance(d, bool) for d in given):
        raise TypeError(f"dim must be an integer or several, got {dim!r}")
    dims = tuple(sorted(checked_dim(shape, d) for d in given))
    if not dims or len(set(dims)) < len(dims):
        raise ValueError(f"dim must name each dimension once, and at least one, got {dim!r}")
    for d in dims:
        if shape[d] == 0:
            raise ValueError(f"z must hold at least one value along dim {d}, got {tuple(shape)}")
    return dims


def checked_order(p: Tensor | float, z: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    """``p`` as a tensor that broadcasts against z, with size 1 along the pooled dimensions."""
    if not isinstance(p, Tensor):
        return _number(p, z)
    check_floating("p", p)
    check_device("p", p, z)
    if keepdim:
        out = torch.Size(1 if d in dims else n for d, n in enumerate(z.shape))
    else:
        out = torch.Size(n for d, n in enumerate(z.shape) if d not in dims)
    check_order_shape(p, out)
    if keepdim:
        return p
    for d in reversed(dims):  # p gets each pooled dimension that it reaches beyond
        behind = z.ndim - d - 1
        if p.ndim > behind:
            p = p.unsqueeze(p.ndim - behind)
    return p


def check_order_shape(p: Tensor, out: torch.Size) -> None:
    """Raise ValueError unless p broadcasts to the result."""
    if not _broadcasts(p.shape, out):
        raise ValueError(
            f"p must broadcast to the shape {tuple(out)} of the result, "
            f"got the shape {tuple(p.shape)}"
        )


def checked_orders(p: Tensor | float, z: Tensor, channels: int) -> Tensor:
    """``p`` as one order for each channel."""
    if not isinstance(p, Tensor):
        return _number(p, z).expand(channels)
    check_floating("p", p)
    check_device("p", p, z)
    if p.shape not in ((), (1,), (channels,)):
        raise ValueError(
            f"p must be a number or one for each of {channels} channels, "
            f"got the shape {tuple(p.shape)}"
        )
    return p.expand(channels)


def check_mask(mask: Tensor | None, z: Tensor) -> None:
    """Raise TypeError or ValueError unless the mask, if there is one, has booleans for z."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a tensor of booleans, got {got}")
    check_like_z("mask", mask, z)


def checked_weight(mask: Tensor | None, weight: Tensor | None, z: Tensor) -> Tensor | None:
    """Mask and weights as one tensor: a mask, weights, or weights that are 0 where the mask is."""
    check_mask(mask, z)
    if weight is None:
        return mask
    check_floating("weight", weight)
    check_like_z("weight", weight, z)
    weight = weight if mask is None else torch.where(mask, weight, 0)
    if can_look_at(weight) and bool((wrong := ~((weight >= 0) & weight.isfinite())).any()):
        first = weight[wrong][0].item()
        raise ValueError(f"weight must be finite and not negative, got {first}")
    return weight


def counted_positions(lengths: Tensor, z: Tensor, batched: int) -> Tensor:
    """Which positions of sequences count: ``(batch, length)``, or ``(length,)`` of one."""
    if not isinstance(lengths, Tensor) or lengths.dtype not in (torch.int32, torch.int64):
        got = lengths.dtype if isinstance(lengths, Tensor) else type(lengths).__name__
        raise TypeError(f"lengths must be a tensor of integers, got {got}")
    if z.ndim != 2 + batched or lengths.shape != z.shape[:batched]:
        raise ValueError(
            f"lengths must be one for each sequence of (batch, channels, length), got the shape "
            f"{tuple(lengths.shape)} for z of shape {tuple(z.shape)}"
        )
    if can_look_at(lengths) and ((lengths < 0) | (lengths > z.shape[-1])).any():
        raise ValueError(f"lengths must be from 0 to {z.shape[-1]}, got {lengths.tolist()}")
    return torch.arange(z.shape[-1], device=z.device) < lengths.unsqueeze(-1)


def per_dimension(
    name: str, value: int | Sequence[int], spatial: int, *, least: int
) -> tuple[int, ...]:
    """One integer for each dimension of space."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * spatial
    if (
        len(values) != spatial
        or any(isinstance(v, bool) or not isinstance(v, int) for v in values)
        or min(values) < least
    ):
        raise ValueError(
            f"{name} must be an integer of at least {least}, or one for each of {spatial} "
            f"dimensions, got {value!r}"
        )
    return values


def can_look_at(*tensors: Tensor | None) -> bool:
    """Whether values may decide: not in a graph that is being made, nor on the meta device."""
    return (
        not recorded()
        and not torch._C._are_functorch_transforms_active()
        and not any(
            t is not None and (t.is_meta or isinstance(t, torch._subclasses.FakeTensor))
            for t in tensors
        )
    )


def inside_a_transform(*tensors: Tensor | None) -> bool:
    """Whether someone has to see what an operator is made of."""
    for t in tensors:
        if type(t) not in _COMMON and hasattr(t, "placements"):
            return True  # a DTensor: torch knows how to distribute ordinary operations
    if torch._C._are_functorch_transforms_active() and not _batching():
        return True
    if recorded():
        return torch.onnx.is_in_onnx_export()
    return forward_ad._current_level >= 0 and any(
        t is not None and forward_ad.unpack_dual(t).tangent is not None for t in tensors
    )


def recorded() -> bool:
    """Whether a graph is being made of what is called."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def _batching() -> bool:
    """Whether vmap is the only transform: there is a rule for it."""
    levels = torch._C._functorch.get_interpreter_stack()
    return levels is not None and all(
        level.key() == torch._C._functorch.TransformType.Vmap for level in levels
    )


def _number(p: float, z: Tensor) -> Tensor:
    if isinstance(p, bool) or not isinstance(p, Real):
        raise TypeError(f"p must be a number or a floating-point tensor, got {p!r}")
    if math.isnan(p):
        raise ValueError(f"p must be a number from -inf to inf, got {p}")
    dtype = torch.float64 if z.dtype == torch.float64 else torch.float32
    return torch.full((), float(p), dtype=dtype, device=z.device)


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    """Whether ``shape`` can be expanded to ``target`` without enlarging it."""
    if shape == target[len(target) - len(shape) :]:  # nearly always
        return True
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, goal) for size, goal in pairs)
