"""Sphinx configuration: furo, MyST, docstrings in Google style; the reference is written from the code."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generate import write_reference  # lies beside this file

from aaren.version import __version__

write_reference(Path(__file__).parent / "reference")

project = "aaren"
copyright = "the aaren developers, Apache-2.0"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"aaren {release}"
html_static_path = ["_static"]
html_css_files = ["aaren.css"]
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
