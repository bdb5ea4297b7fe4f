"""A real worker process: `python work.py APP`, its settings from SEMEL_*."""

import sys

from semel import config, log
from semel.runtime.app import load
from semel.runtime.process import work

if __name__ == "__main__":
    log.setup(json=True)
    settings = config.load()
    assert settings.dsn is not None
    work(load(sys.argv[1]), settings, target=sys.argv[1], dsn=settings.dsn)
