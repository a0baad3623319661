"""How the documentation is built: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs import reference
from freezethaw import __version__

project, author, release = "freezethaw", "The freezethaw authors", __version__
copyright = "The freezethaw authors"  # noqa: A001 - Sphinx calls it so
extensions = ["myst_parser", "sphinx.ext.doctest", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"freezethaw {__version__}"
html_show_sourcelink = False

reference.write()
