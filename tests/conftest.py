"""Loads the fixtures; nothing else."""

pytest_plugins = [
    "fix_server",
    "fix_database",
    "fix_world",
    "fix_explained",
    "fix_cli",
    "fix_tally",
]
