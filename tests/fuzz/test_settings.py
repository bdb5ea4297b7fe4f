"""Whatever semel.toml and the environment say: settings that can be shown, or one clear refusal."""

import json
from pathlib import Path
from random import Random

import pytest

import fuzzing
from fuzzing import TIMEOUT, fuzz
from modelling import Tally
from semel.config import load
from semel.errors import BadConfig

pytestmark = pytest.mark.timeout(TIMEOUT)

KEYS = {
    "": ["dsn", "home", "project", "pooler", "testing"],
    "sources.alerts": [
        *("project", "channel", "agent", "secrets", "resolved_grace", "require_key", "run_on"),
        *("unit", "priority", "events", "when", "reminder", "name", "authenticate", "window"),
        *("content_window", "hmac", "allow", "rate", "silent_after", "route"),
    ],
    "[sources.alerts.route]": ["agent", "events", "when", "name"],
    "sources.alerts.hmac": [
        *("header", "prefix", "algorithm", "encoding", "key", "signed", "timestamp", "id"),
        *("timestamp_unit", "window", "event", "correlation", "source"),
    ],
    "worker": ["lease", "heartbeat", "dead_after", "pause", "slots", "drain"],
    "server": ["host", "port", "body_bytes_max", "header_bytes_max", "pool", "trusted_proxies"],
    "retention": ["dedupe", "deliveries", "runs", "results", "operations", "journal"],
}
GOOD = [
    *('"5m"', '"30s"', '"0.5s"', '"7d"', '"never"', '"ops"', '"alertmanager"', '"telegram"'),
    *(
        '"api"',
        '"triage"',
        '"env:TOKEN"',
        '["env:TOKEN"]',
        '["env:TOKEN", "file:absent"]',
        "[]",
    ),
    *("true", "false", "0", "1", "10", "8750", "65536", "-1", "1e3", "inf", "nan", "{}", "[1]"),
    *('"127.0.0.1"', '"::1"', '"0.0.0.0"', '"firing+resolved"', '"notification"', "1979-05-27"),
    *("07:32:00", "0x10", "1_000", '"X-Sig"', '"{body}"', '"{id}{body}"', '"header:X-Id"'),
    *(
        '["push", "*"]',
        '{ "/a" = 1 }',
        '{ "/a/b" = ["x", true] }',
        '{ "/a" = { prefix = "x" } }',
    ),
    *('["10.0.0.0/8", "::1"]', '["10.0.0.1/8"]', '"100/1m"', '"9/9d"', '[{ agent = "a" }]'),
    *('"body:/a"', '"body:a"', '"content"', '"sha256"', '"hex"', '"none"', '"none"'),
]
DSNS = [
    '"postgresql://u:hunter2@h/d"',
    '"host=h password=hunter2"',
    '"password=hunter2 %"',
    '"env:D"',
]


def written(some: Random, key: str) -> str:
    """A value of a setting, as it may stand in the file."""
    if key == "dsn" and some.random() < 0.7:
        return some.choice(DSNS)
    if some.random() < 0.7:
        return some.choice(GOOD)
    told = fuzzing.value(some)
    return json.dumps(told, ensure_ascii=some.random() < 0.5)


def test_no_file_harms_us(tmp_path: Path, record_property: Tally) -> None:
    file = tmp_path / "semel.toml"

    def case(some: Random) -> None:
        lines = []
        for section in some.sample(list(KEYS), some.randrange(1, 4)):
            name = section if some.random() < 0.9 else fuzzing.text(some)
            lines += [f"[{name}]"] if section else []
            for key in some.sample(KEYS[section], some.randrange(min(4, len(KEYS[section])))):
                key_ = key if some.random() < 0.95 else fuzzing.text(some)
                lines.append(f"{key_} = {written(some, key)}")
            if section == "sources.alerts" and some.random() < 0.8:
                channel = some.choice(["api", "hmac", "standard", "discord", "gitea"])
                lines += [f'channel = "{channel}"', 'agent = "a"']
        raw = "\n".join(lines).encode("utf-8", "surrogatepass")
        torn = some.random() < 0.2
        file.write_bytes(fuzzing.torn(some, raw) if torn else raw)
        # Where the file is torn a DSN may be the value of another setting, which is shown.
        environ = {"TOKEN": "s3cret", "D": "postgresql://u:hunter2@h"}
        judge(
            environ,
            tmp_path,
            strict=some.random() < 0.5,
            hidden="s3cret" if torn else "hunter2",
        )

    record_property("cases", fuzz(case))


def test_no_environment_harms_us(tmp_path: Path, record_property: Tally) -> None:
    words = [word.strip('"') for word in GOOD]
    names = [
        *(f"SEMEL_{key.upper()}" for key in KEYS[""]),
        *(f"SEMEL_{s.upper()}_{k.upper()}" for s in ("worker", "server", "retention") for k in KEYS[s]),
        *("SEMEL_CONFIG", "SEMEL_PORT", "SEMEL_STOP_AT", "SEMEL_NOSUCH", "SEMEL_", "SEMEL_TESTING"),
    ]  # fmt: skip

    def case(some: Random) -> None:
        environ = {
            name: some.choice(words)
            if some.random() < 0.8
            else fuzzing.typed(fuzzing.text(some))
            for name in some.sample(names, some.randrange(1, 4))
        }
        judge(environ, tmp_path, strict=True, hidden="hunter2")

    record_property("cases", fuzz(case))


def judge(environ: dict[str, str], cwd: Path, *, strict: bool, hidden: str) -> None:
    try:
        told = load(environ, cwd, secrets=strict)
    except BadConfig as refused:
        assert str(refused)
        assert "s3cret" not in str(refused)
        assert hidden not in str(refused)
        return
    shown = json.dumps(told.shown())
    assert "s3cret" not in shown
    assert hidden not in shown
    assert load(environ, cwd, secrets=strict).shown() == told.shown()
