"""Loads the fixtures; nothing else."""

import signal

pytest_plugins = [
    "fix_server",
    "fix_database",
    "fix_world",
    "fix_serving",
    "fix_channels",
    "fix_bouncer",
    "fix_explained",
    "fix_cli",
    "fix_tally",
    "fix_rest",
    "fix_node",
    "fix_tools",
]

# Whoever starts the suite in a shell's background has SIGINT ignored, and so would every program
# that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
