"""The schemas of the operators ``torch.ops.lpunits.*``.

In ``lp_pool`` the orders ``p`` broadcast against z, with size 1 along ``dim``. In ``lp_pool_nd`` z
is ``(batch, channels, *space)`` and p has one order per channel. ``lp_pool_segments`` pools the
rows ``offsets[g]`` to ``offsets[g + 1]`` of z, or of ``rows_at``, which ``group_rows`` finds. A
``weight`` broadcasts to z, and may be a mask; its gradient comes with the shape of z, to be summed.
Gradients that are not needed come back empty.
"""

import torch

_WINDOWS = (
    "Tensor z, Tensor p, int[] kernel, int[] stride, int[] padding, int[] dilation, "
    "bool ceil_mode, bool count_include_pad"
)
library = torch.library.Library("lpunits", "DEF")
for _schema in (
    "lp_pool(Tensor z, Tensor p, Tensor? center, int dim, Tensor? weight=None) -> Tensor",
    "lp_pool.out(Tensor z, Tensor p, Tensor? center, int dim, Tensor? weight=None, "
    "*, Tensor(a!) out) -> Tensor(a!)",
    "lp_pool_backward(Tensor grad, Tensor z, Tensor p, Tensor? center, int dim, bool need_p, "
    "bool need_center, Tensor? weight=None, bool need_weight=False) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    "lp_pool_backward_into_(Tensor grad, Tensor z, Tensor p, int dim, bool need_p, "
    "Tensor(a!) dz) -> Tensor",
    f"lp_pool_nd({_WINDOWS}) -> Tensor",
    f"lp_pool_nd_backward(Tensor grad, {_WINDOWS}, bool need_p) -> (Tensor, Tensor)",
    "group_rows(Tensor index, SymInt num_segments) -> (Tensor, Tensor)",
    "lp_pool_segments(Tensor z, Tensor p, Tensor offsets, Tensor? rows_at=None, "
    "Tensor? weight=None) -> Tensor",
    "lp_pool_segments_backward(Tensor grad, Tensor z, Tensor p, Tensor offsets, bool need_p, "
    "Tensor? rows_at=None, Tensor? weight=None, bool need_weight=False) "
    "-> (Tensor, Tensor, Tensor)",
    "dropout(Tensor x, float rate, int seed) -> Tensor",
    "descend_(Tensor(a!)[] weights, Tensor(b!)[] velocities, Tensor[] grads, int[] filter_sizes, "
    "float lr, float momentum, float weight_decay, float[] max_norms) -> ()",
    "instruction_set() -> str",
):
    library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
ops = torch.ops.lpunits
