"""The busy agent of rolling.py, version 2."""

from rolling import busy  # type: ignore[import-not-found]  # it stands beside this one

app = busy("2")
