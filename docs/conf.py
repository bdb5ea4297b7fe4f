from importlib import metadata

project = "Semel"
copyright = "The Semel authors"  # noqa: A001 - Sphinx's name
release = metadata.version("semel")

extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "Semel"
