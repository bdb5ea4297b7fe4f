"""A real upkeep process, its settings from SEMEL_*."""

import signal

from semel import config, log
from semel.runtime.upkeep import Upkeep

if __name__ == "__main__":
    log.setup(json=True)
    settings = config.load()
    assert settings.dsn is not None
    upkeep = Upkeep(settings, dsn=settings.dsn)
    signal.signal(signal.SIGTERM, lambda *_: upkeep.stop())
    upkeep.run()
