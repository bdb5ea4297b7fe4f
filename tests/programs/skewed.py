"""A worker on a machine whose clock is wrong: `python skewed.py SECONDS APP`."""

import sys
import time

_SECONDS = float(sys.argv[1])
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _SECONDS
time.time_ns = lambda: _time_ns() + int(_SECONDS * 1e9)

if __name__ == "__main__":
    from semel import config, log
    from semel.runtime.app import load
    from semel.runtime.process import work

    log.setup(json=True)
    settings = config.load()
    assert settings.dsn is not None
    work(load(sys.argv[2]), settings, target=sys.argv[2], dsn=settings.dsn)
