"""Groups of any size: :func:`segment_lp_pool`."""

import torch
from torch import Tensor

from lpunits.arguments import (
    can_look_at,
    check_device,
    check_floating,
    check_order_shape,
    check_sizes,
    checked_dim,
    checked_order,
    checked_weight,
    inside_a_transform,
)
from lpunits.ops import layouts, ops


def segment_lp_pool(
    z: Tensor,
    p: Tensor | float,
    index: Tensor | None = None,
    *,
    offsets: Tensor | None = None,
    num_segments: int | None = None,
    dim: int = 0,
    weight: Tensor | None = None,
) -> Tensor:
    r""":func:`~lpunits.lp_pool` of groups of any size: nodes of a graph, words of a sentence.

    .. math:: u_g = \Bigl( \frac{\sum_{i \in g} w_i |z_i|^p}{\sum_{i \in g} w_i} \Bigr)^{1/p}

    ``index`` gives the group of each row of z, in any order. Or the rows of a group are neighbours:
    group g has those from ``offsets[g]`` to ``offsets[g + 1]``. An empty group gives 0.

    >>> z = torch.tensor([[3.0, 0.0], [7.0, 1.0], [4.0, 0.0]])
    >>> segment_lp_pool(z, 2, torch.tensor([0, 2, 0]))
    tensor([[3.5355, 0.0000],
            [0.0000, 0.0000],
            [7.0000, 1.0000]])
    >>> segment_lp_pool(z, 1, offsets=torch.tensor([0, 1, 3]))
    tensor([[3.0000, 0.0000],
            [5.5000, 0.5000]])

    Args:
        z: The values.
        p: The order: a number from -inf to inf, or a tensor that broadcasts to the result.
        index: The group of each row, integers from 0.
        offsets: Where groups begin, and where the last one ends.
        num_segments: How many groups an ``index`` has; by default as many as it names. Compiled
            graphs need it.
        dim: The dimension of z that the rows are along.
        weight: How much each entry counts, not negative; broadcasts to z.
    """
    check_floating("z", z)
    dim = checked_dim(z.shape, dim)
    if (index is None) == (offsets is None):
        given = "neither" if index is None else "both"
        raise ValueError(f"index must be given, or offsets, got {given}")
    if weight is not None:
        weight = checked_weight(None, weight, z)
        weight = weight[(None,) * (z.ndim - weight.ndim)].movedim(dim, 0)  # type: ignore[index, union-attr]
    rows_at = None
    if index is not None:
        index, count = _checked_index(index, num_segments, z.shape[dim])
        check_device("index", index, z)
        offsets, rows_at = ops.group_rows(index, count)
    else:
        offsets = _checked_offsets(offsets, num_segments, z.shape[dim])
        check_device("offsets", offsets, z)
        count = offsets.shape[0] - 1
    rank, z = z.ndim, z.movedim(dim, 0)
    out = (*z.shape[1 : dim + 1], count, *z.shape[dim + 1 :])
    if isinstance(p, Tensor):
        check_floating("p", p)
        check_device("p", p, z)
        check_order_shape(p, torch.Size(out))
        p = p[(None,) * (rank - p.ndim)].movedim(dim, 0) if p.ndim else p
    else:
        p = checked_order(p, z, (), False)
    return pool_rows(z, p, offsets, rows_at, weight).movedim(0, dim)


def pool_rows(
    z: Tensor,
    p: Tensor,
    offsets: Tensor,
    rows_at: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Checked arguments: the rows of z, or of ``rows_at``, from each offset to the next."""
    if rows_at is not None and z[:1].numel() < 8:  # narrow rows are faster as neighbours
        if weight is not None and weight.shape[0] > 1:
            weight = weight.index_select(0, rows_at)
        z, rows_at = z.index_select(0, rows_at), None
    if inside_a_transform(z, p, weight):
        return layouts.pool_segments(z, p, offsets, rows_at, weight)
    return ops.lp_pool_segments(z, p, offsets, rows_at, weight)  # type: ignore[no-any-return]


def _checked_vector(name: str, t: Tensor, expected: str) -> Tensor:
    if not isinstance(t, Tensor) or t.dtype not in (torch.int32, torch.int64) or t.ndim != 1:
        got = f"{t.dtype} of shape {tuple(t.shape)}" if isinstance(t, Tensor) else repr(t)
        raise TypeError(f"{name} must be a vector of integers, {expected}, got {got}")
    return t.long().contiguous()


def _checked_index(index: Tensor, count: int | None, rows: int) -> tuple[Tensor, int]:
    index = _checked_vector("index", index, "the group of each row")
    if index.shape[0] != rows:
        raise ValueError(
            f"index must have one entry for each of the {rows} rows of z, got {index.shape[0]}"
        )
    if count is not None:
        check_sizes(num_segments=count)
    if can_look_at(index) and rows:
        low, high = (int(t) for t in torch.aminmax(index))
        if low < 0 or (count is not None and high >= count):
            most = "" if count is None else f" to num_segments - 1 = {count - 1}"
            raise ValueError(f"index must be from 0{most}, got {low if low < 0 else high}")
        return index, high + 1 if count is None else count
    if count is None:
        count = int(index.max()) + 1 if rows else 0
    return index, count


def _checked_offsets(offsets: Tensor | None, count: int | None, rows: int) -> Tensor:
    assert offsets is not None
    offsets = _checked_vector("offsets", offsets, "where each group begins and the last one ends")
    if count is not None and offsets.shape[0] != count + 1:
        raise ValueError(
            f"num_segments must be one less than there are offsets, {offsets.shape[0] - 1}, "
            f"got {count}"
        )
    if not can_look_at(offsets):
        return offsets
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != rows or (offsets.diff() < 0).any():
        raise ValueError(
            f"offsets must rise from 0 to the number of rows of z, {rows}, got {offsets.tolist()}"
        )
    return offsets
