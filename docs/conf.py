"""Sphinx: the documentation in Markdown, the reference from the docstrings."""

from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

project = "lpunits"
author = "the lpunits developers"
copyright = "2026, the lpunits developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3  # [text](page.md#a-heading) works, and a wrong anchor is a warning
autodoc_typehints = "description"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "lpunits"
suppress_warnings = ["ref.python"]
nitpicky = True  # a name in a docstring that leads nowhere is a warning ...
nitpick_ignore_regex = [  # ... but for other libraries, whose pages would have to be downloaded
    ("py:.*", r"(torch|numpy|collections|matplotlib|pathlib|optuna|rich)\..*"),
    ("py:class", r"Axes|Figure|.*\.(Input|Values|Points)"),
    ("py:class", r".* .*"),  # napoleon takes "The name: ..." of a property for its type
]


def folders_as_text(app: Sphinx, doctree: nodes.document) -> None:
    """A link to a folder of the repository, such as ../results/toy, is plain text on the site."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for link in list(doctree.findall(pending_xref)):
        if (here / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", folders_as_text)
