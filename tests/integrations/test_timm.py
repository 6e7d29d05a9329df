"""with_lp_pool on networks of the real timm, which needs torchvision to be imported."""

import math
import warnings

import pytest
import torch

from lpunits import orders, param_groups

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # PyPI's torchvision has compiled operators for torch with CUDA only. Beside a torch without
        # they are missing; the two that it asks for by name are declared, nothing here calls them.
        if not torch.backends.cuda.is_built():
            torchvision = torch.library.Library("torchvision", "FRAGMENT")
            for name in ("nms", "qnms"):
                torchvision.define(f"{name}(Tensor a, Tensor b, float c) -> Tensor")
        import timm

        from lpunits.integrations.timm import LpAdaptivePool2d, with_lp_pool
except (ImportError, RuntimeError) as error:
    pytest.skip(f"needs timm with its torchvision: {error}", allow_module_level=True)

SWIN = "swin_tiny_patch4_window7_224"
NETS = ["resnet18", "convnext_atto", "mobilenetv3_small_050", "regnety_002", SWIN]


@pytest.mark.parametrize("name", NETS)
def test_a_network_takes_it_and_learns_its_orders(name):
    net = with_lp_pool(timm.create_model(name, num_classes=3), order=(1.5, 6.0))
    (layer,) = (m for m in net.modules() if isinstance(m, LpAdaptivePool2d))
    assert not layer.is_identity()
    size = 224 if name == SWIN else 64
    net(torch.rand(2, 3, size, size)).square().sum().backward()
    assert layer.pool.rho.grad.abs().max() > 0
    (found,) = orders(net).values()
    assert len(found) == net.num_features
    assert [g["name"] for g in param_groups(net, lr=0.1)][:2] == ["weights", "orders"]


@pytest.mark.parametrize(("order", "pool"), [(1.0, "avg"), (math.inf, "max")])
def test_its_ends_are_average_and_max_pooling(order, pool):
    net = timm.create_model("resnet18", num_classes=3, global_pool=pool).eval()
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        before = net(x)
        torch.testing.assert_close(with_lp_pool(net, order=order)(x), before)


@pytest.mark.parametrize(
    ("name", "options", "kinds"),
    [
        ("vit_tiny_patch16_224", {}, "none"),
        ("resnet18", {"global_pool": ""}, r"\[''\]"),
        ("resnet18", {"global_pool": "catavgmax"}, r"\['catavgmax'\]"),
    ],
)
def test_networks_that_it_does_not_fit(name, options, kinds):
    with pytest.raises(ValueError, match=f"must have one global pooling layer .* with {kinds}"):
        with_lp_pool(timm.create_model(name, **options))
