"""Sphinx: the documentation in Markdown, the reference from the docstrings."""

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

project = "lpunits"
author = "the lpunits developers"
copyright = "2026, the lpunits developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3  # [text](page.md#a-heading) works, and a wrong anchor is a warning
autodoc_typehints = "description"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "lpunits"
html_math_renderer = "mathml"
suppress_warnings = ["ref.python"]
nitpicky = True  # a name in a docstring that leads nowhere is a warning ...
nitpick_ignore_regex = [  # ... but for other libraries, whose pages would have to be downloaded
    ("py:.*", r"(torch|torch_geometric|numpy|collections|matplotlib|pathlib|optuna|rich)\..*"),
    ("py:class", r"Axes|Figure|.*\.(Input|Values|Points)"),
    ("py:.*", r"lpunits\.paper\..*|DATASETS|Experiment|Section"),  # a selection of the paper
    ("py:class", r".* .*"),  # napoleon takes "The name: ..." of a property for its type
]


def tidy(app: Sphinx, doctree: nodes.document) -> None:
    """Links to folders of the repository become text; code blocks lose their empty last line."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for link in list(doctree.findall(pending_xref)):
        if (here / link["reftarget"]).is_dir():
            link.replace_self(link.children)
    for block in doctree.findall(nodes.literal_block):
        block.rawsource = block.astext().rstrip()  # has to be the text, or it is not highlighted
        block[:] = [nodes.Text(block.rawsource)]


def write_math(writer: Any, node: nodes.math | nodes.math_block) -> None:
    """Formulas as MathML, which browsers draw without a script or a network."""
    block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block=block)
    writer.body.append(f'<div style="overflow-x: auto">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def copy_playground(app: Sphinx, error: Exception | None) -> None:
    """The playground is a part of the site."""
    source = Path(app.srcdir).parent / "playground"
    shutil.copytree(source, Path(app.outdir) / "playground", dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", tidy)
    app.connect("build-finished", copy_playground)
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
