"""Sphinx: the documentation in Markdown, the reference from the docstrings."""

project = "lpunits"
author = "the lpunits developers"
copyright = "2026, the lpunits developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "lpunits"
suppress_warnings = ["ref.python"]
