"""The server of the settings in the environment, as `semel serve` runs it."""

from semel import config, log
from semel.ops.server import serve

log.setup(json=True)
serve(config.load())
