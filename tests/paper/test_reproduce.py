"""The main job: its numbers, its page, and its command."""

import re

import pytest

pytest.importorskip("cyclopts", reason="needs lpunits[paper]")

from lpunits import cli
from lpunits.paper.experiments import toy


@pytest.mark.parametrize("order", [1.2, 2.0, 4.0])
def test_a_unit_finds_the_order_of_the_norm_that_made_the_data(order):
    result = toy.run(toy.Toy(starts=6), order, seed=0)
    assert result.learned_order == pytest.approx(order, rel=0.15)
    assert result.train_errors == 0
    assert result.test_error < 0.01


def test_the_command_writes_one_page_that_needs_nothing_else(tmp_path, monkeypatch, capsys):
    small = toy.Toy(orders=(2.0, 4.0), seeds=(0, 1), starts=1, iterations=20)
    monkeypatch.setattr(toy, "Toy", lambda: small)
    with pytest.raises(SystemExit) as ended:
        cli.app(["reproduce", "--out", str(tmp_path / "new" / "folder")])
    assert ended.value.code == 0
    page = tmp_path / "new" / "folder" / "index.html"
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {page.as_uri()}"
    text = page.read_text()
    assert text.count("<svg") == text.count('aria-label="') == 2
    # Nothing is loaded from elsewhere: namespaces of SVG are names, not addresses.
    assert not re.findall(r'(?:src|href)="(?!#)', text)
    assert [p.name for p in page.parent.iterdir()] == ["index.html"]


def test_errors_of_the_user_are_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match=r"lpunits: .*file"):
        cli.main(["reproduce", "--out", str(tmp_path / "file")])
