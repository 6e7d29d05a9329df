"""Networks with the default arguments learn. These fail with ``start="zero"``.

The exception is SGD on breast cancer, which fails without the bias after the root.

docs/explanation/start.md has the study, on many more sets and seeds; these are its smallest cases.
"""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from lpunits import DOTRNN, DTRNN, MLP, param_groups
from lpunits.paper.training.music import Music, Prediction

sklearn = pytest.importorskip("sklearn", reason="needs lpunits[paper]")


def error(net, x, y, *, epochs=20, sgd=False):
    """In %, of every fifth row after training on the others, with cosine decay."""
    x = (x - x.mean(0)) / x.std(0).clamp(min=1e-6)
    judged = torch.arange(len(x)) % 5 == 0
    x_train, y_train = x[~judged], y[~judged]
    optimizer = (
        torch.optim.SGD(param_groups(net, 0.05), momentum=0.9)
        if sgd
        else torch.optim.AdamW(param_groups(net, 1e-3))
    )
    steps = epochs * -(-len(x_train) // 32)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(x_train)).split(32):
            optimizer.zero_grad()
            cross_entropy(net(x_train[rows]), y_train[rows]).backward()
            optimizer.step()
            schedule.step()
    net.eval()
    return 100 * (net(x[judged]).argmax(1) != y[judged]).float().mean().item()


def table(name):
    from sklearn import datasets

    if name == "digits":
        x, y = datasets.load_digits(return_X_y=True)
    elif name == "breast cancer":
        x, y = datasets.load_breast_cancer(return_X_y=True)
    else:
        x, y = datasets.make_moons(1000, noise=0.25, random_state=0)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


@pytest.fixture(autouse=True)
def _one_thread():
    """These networks are too small for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("name", "most"), [("breast cancer", 6.0), ("moons", 8.0)])
def test_two_layers_on_a_table(name, most):
    x, y = table(name)
    assert error(MLP(x.shape[1], [64, 64], 2), x, y) < most


@pytest.mark.parametrize(("name", "most"), [("breast cancer", 7.0), ("digits", 5.0)])
def test_sgd(name, most):
    """The common mean of norms makes a rate at which rectifiers learn too large for it."""
    x, y = table(name)
    assert error(MLP(x.shape[1], [64, 64], 10), x, y, sgd=True) < most


def test_ten_layers_on_digits():
    assert error(MLP(64, [64] * 10, 10), *table("digits"), epochs=10) < 7


def test_dropout_on_digits():
    assert error(MLP(64, [64, 64, 64], 10, dropout=0.3), *table("digits"), epochs=10) < 7


def test_a_recurrent_network_on_generated_music():
    """At a rate at which the state of one that starts at zero saturates."""
    task = Prediction(Music("chords", batch=4))
    net = DOTRNN(88, 100, 88, 100, output_units=50, dropout=0.1)
    optimizer = torch.optim.AdamW(param_groups(net, 0.01))
    for _ in task.gradients(net, [task.data.train], torch.Generator().manual_seed(0)):
        optimizer.step()
        optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        states, _ = net.rnn(pad_sequence(task.data.valid.features))
    assert (states.abs() > 0.95).float().mean() < 0.1


def test_an_old_checkpoint_is_the_network_that_was_trained():
    old, new = DTRNN(4, 8, units=5, start="zero"), DTRNN(4, 8, units=5)
    x = torch.randn(6, 3, 4)
    state = old.state_dict()
    del state["scales"]
    new.load_state_dict(state)
    assert torch.equal(new(x)[0], old(x)[0])
