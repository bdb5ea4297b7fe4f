"""Settings are read whole, or refused with a sentence that says what to write instead."""

from datetime import timedelta
from pathlib import Path

import pytest

from semel.config import Secret, Server, Settings, Source, WorkerSettings, load
from semel.errors import BadConfig

SOURCE = """
[sources.alerts]
project = "ops"
channel = "alertmanager"
agent = "triage"
"""

API = """
[sources.a]
channel = "api"
agent = "x"
"""


def told(tmp_path: Path, text: str = "", **environ: str) -> Settings:
    (tmp_path / "semel.toml").write_text(text)
    return load(environ, tmp_path)


def refusal(tmp_path: Path, text: str = "", **environ: str) -> str:
    with pytest.raises(BadConfig) as refused:
        told(tmp_path, text, **environ)
    return str(refused.value)


def test_nothing_told_gives_the_documented_defaults(tmp_path: Path) -> None:
    settings = load({}, tmp_path)
    assert settings.dsn is None
    assert settings.home == tmp_path / ".semel"
    assert settings.project == "default"
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8750)
    assert settings.server.body_bytes_max == 1_048_576
    assert settings.worker.lease == timedelta(minutes=5)
    assert settings.worker.heartbeat == timedelta(seconds=10)
    assert settings.worker.dead_after == timedelta(seconds=30)
    assert settings.worker.pause == timedelta(seconds=20)
    assert settings.retention.dedupe == timedelta(days=7)
    assert settings.retention.operations is None
    assert not settings.testing


def test_the_contract_s_example_is_read(tmp_path: Path) -> None:
    settings = told(
        tmp_path,
        """
dsn = "env:DATABASE_URL"
[sources.alerts]
project = "ops"
channel = "alertmanager"
agent = "triage"
secrets = ["env:ALERTS_TOKEN", "env:ALERTS_TOKEN_OLD"]
[worker]
lease = "5m"
heartbeat = "10s"
dead_after = "30s"
[retention]
dedupe = "7d"
deliveries = "7d"
runs = "30d"
results = "30d"
operations = "never"
journal = "7d"
""",
        DATABASE_URL="postgres://db/app",
        ALERTS_TOKEN="new",
        ALERTS_TOKEN_OLD="old",
    )
    assert settings.dsn == "postgres://db/app"
    source = settings.sources["ops", "alerts"]
    assert [secret.reveal() for secret in source.secrets] == ["new", "old"]
    assert source.resolved_grace == timedelta(seconds=120)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    settings = told(
        tmp_path,
        'dsn = "dbname=a"\n[worker]\nlease = "5m"\n[server]\nport = 1',
        SEMEL_DSN="dbname=b",
        SEMEL_WORKER_LEASE="3s",
        SEMEL_PORT="9000",
        SEMEL_POOLER="true",
        SEMEL_HOME="elsewhere",
    )
    assert settings.dsn == "dbname=b"
    assert settings.worker.lease == timedelta(seconds=3)
    assert settings.worker.heartbeat == timedelta(seconds=0.5)
    assert settings.worker.dead_after == timedelta(seconds=1.5)
    assert settings.server.port == 9000
    assert settings.pooler
    assert settings.home == tmp_path / "elsewhere"


def test_a_dsn_of_bytes_that_are_no_text_is_refused(tmp_path: Path) -> None:
    assert "SEMEL_DSN is not UTF-8" in refusal(tmp_path, SEMEL_DSN="host=\udcff")


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    assert told(tmp_path, 'dsn = "dbname=a"', SEMEL_DSN="").dsn == "dbname=a"


def test_another_file_is_named_by_semel_config(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('project = "ops"')
    assert load({"SEMEL_CONFIG": "other.toml"}, tmp_path).project == "ops"
    with pytest.raises(BadConfig, match=r"gone\.toml, which is not there"):
        load({"SEMEL_CONFIG": "gone.toml"}, tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[worker]\nlese = '5m'", "unknown key 'lese' (did you mean 'lease'?)"),
        ("[wroker]\nlease = '5m'", "unknown key 'wroker' (did you mean 'worker'?)"),
        (f"[worker]\nslots = {'9' * 5000}", "is not TOML: Exceeds the limit"),
        ("[worker]\nheartbeat = '999999999d'", "[worker] heartbeat is 999999999d: 100ms to 1h"),
        ("[worker]\nlease = 300", "[worker] lease is 300: write a number with its unit"),
        ("[worker]\nlease = '300'", "write a number with its unit"),
        ("[worker]\nlease = 'never'", "[worker] lease is 'never'"),
        ("[worker]\nlease = '2h'", "[worker] lease is 2h: 2s to 1h"),
        ("[worker]\nslots = '1.5'", "[worker] slots is '1.5': write a whole number"),
        ("[worker]\nslots = true", "write a whole number"),
        ("[worker]\nslots = 0", "[worker] slots is 0: 1 to 10000"),
        ("[worker]\npoll = '10ms'", "[worker] poll is 10ms: 50ms to 1m"),
        ("[worker]\nheartbeat = '20s'\ndead_after = '30s'", "dead_after must be at least 3"),
        ("[worker]\nlease = '10s'\nheartbeat = '10s'", "leave heartbeat and dead_after out"),
        ("[worker]\npause = '30s'", "and shorter than dead_after 30s"),
        (
            "[worker]\npause = '1ms'",
            "at least 1.5 heartbeats of 10s, or nothing is ever claimed",
        ),
        ("[worker]\npause = '0s'", "[worker] pause 0s must be at least 1.5"),
        ("[worker]\nheartbeat = '0s'", "[worker] heartbeat is 0s: 100ms to 1h"),
        ("[worker]\nheartbeat = '50ms'", "[worker] heartbeat is 50ms: 100ms to 1h"),
        (
            "[worker]\ndead_after = '0s'",
            "dead_after 0s, lease 5m: dead_after must be at least 3",
        ),
        ("[worker]\nlease = '1s'", "[worker] lease is 1s: 2s to 1h"),
        (
            "[worker]\nslots = '5'",
            "[worker] slots is '5': write a whole number, without quotes",
        ),
        ("pooler = 1", "pooler is 1: write true or false"),
        ("dsn = ''", "dsn is empty: leave it out"),
        ("[server]\nhost = ''", "[server] host is empty: leave it out"),
        (SOURCE + "priority = '5'", "priority is '5': write a whole number, without quotes"),
        (SOURCE + "reminder = '4'", "[sources.alerts] reminder is '4': write a number with"),
        (SOURCE + "require_key = true", "is a setting of channel api, and this is a source of"),
        (API + "require_key = 1", "[sources.a] require_key is 1: write true or false"),
        (API + "unit = 'alert'", "unit is a setting of channel alertmanager"),
        (API + "run_on = 'firing'", "run_on is a setting of channel alertmanager"),
        (API + "resolved_grace = '1m'", "resolved_grace is a setting of channel alertmanager"),
        ("[server]\nport = 70000", "[server] port is 70000: 0 to 65535"),
        ("[retention]\noperations = '23h'", "permits a second execution"),
        ("[retention]\nruns = '6d'", "runs 6d is shorter than dedupe 7d"),
        ("pooler = 'maybe'", "pooler is 'maybe': write true or false"),
        ("project = 'Ops'", "project is 'Ops': 1 to 64 of a-z"),
        ("dsn = 5", "dsn is 5: write text in quotes"),
        (
            "dsn = 'env:NOWHERE'",
            "dsn: env:NOWHERE is empty or not there: set the variable NOWHERE",
        ),
        ("testing = true", "unknown key 'testing'"),
        ("worker = 5", "[worker] is 5: it is a table"),
        ("[worker", "is not TOML"),
        (SOURCE + "secret = 'env:X'", "unknown key 'secret' (did you mean 'secrets'?)"),
        (SOURCE + "name = 'x'", "unknown key 'name'"),
        (SOURCE + "run_on = 'resolved'", "one of firing, firing+resolved"),
        (SOURCE + "priority = 10", "[sources.alerts] priority is 10: 0 to 9"),
        (SOURCE + "secrets = 'env:X'", "write a list of references"),
        (
            SOURCE + "secrets = ['env:X']",
            "[sources.alerts] secrets: env:X is empty or not there",
        ),
        ("[sources.a]\nchannel = 'api'", "[sources.a] has no agent"),
        ("[sources.a]\nchannel = 'telegam'\nagent = 'x'", "did you mean 'telegram'?"),
        ("[sources.'a/b']\nchannel = 'api'\nagent = 'x'", "name is 'a/b'"),
        ("[sources.a]\nchannel = 'api'\nagent = 'no spaces'", "agent is 'no spaces'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_mend(
    tmp_path: Path, text: str, sentence: str
) -> None:
    assert sentence in refusal(tmp_path, text)


def test_a_variable_that_means_nothing_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, SEMEL_WORKER_LESE="3s")
    assert "'SEMEL_WORKER_LESE' (did you mean 'SEMEL_WORKER_LEASE'?)" in said


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("SEMEL_PROJECT", "A B", "SEMEL_PROJECT is 'A B': 1 to 64 of a-z"),
        ("SEMEL_WORKER_LEASE", "2h", "SEMEL_WORKER_LEASE is 2h: 2s to 1h"),
        ("SEMEL_PORT", "70000", "SEMEL_PORT is 70000: 0 to 65535"),
        ("SEMEL_RETENTION_RUNS", "6d", "SEMEL_RETENTION_RUNS 6d is shorter than dedupe"),
        ("SEMEL_WORKER_SLOTS", "many", "SEMEL_WORKER_SLOTS is 'many': write a whole number"),
        ("SEMEL_POOLER", "maybe", "SEMEL_POOLER is 'maybe': write true or false"),
    ],
)
def test_a_variable_and_not_the_file_is_blamed_for_what_it_says(
    tmp_path: Path, name: str, value: str, sentence: str
) -> None:
    assert refusal(tmp_path, **{name: value}).startswith(sentence)


def test_the_shortest_lease_is_one_that_everything_else_can_follow(tmp_path: Path) -> None:
    worker = told(tmp_path, "[worker]\nlease = '2s'").worker

    assert worker.heartbeat * 3 == worker.dead_after
    assert worker.heartbeat * 2 == worker.pause < worker.dead_after < worker.lease


def test_the_file_that_was_read_is_shown(tmp_path: Path) -> None:
    assert load({}, tmp_path).shown()["file"] is None
    assert told(tmp_path).shown()["file"] == str(tmp_path / "semel.toml")


def test_a_variable_that_a_secret_names_is_no_setting(tmp_path: Path) -> None:
    settings = told(tmp_path, SOURCE + 'secrets = ["env:SEMEL_ALERTS"]', SEMEL_ALERTS="x")
    assert settings.sources["ops", "alerts"].secrets[0].reveal() == "x"


def test_two_names_of_one_setting_are_refused(tmp_path: Path) -> None:
    assert "the same setting" in refusal(tmp_path, SEMEL_PORT="1", SEMEL_SERVER_PORT="2")


def test_a_secret_is_never_written_out_nor_shown(tmp_path: Path) -> None:
    said = refusal(tmp_path, SOURCE + 'secrets = ["hunter2"]')
    assert "env:NAME" in said
    assert "hunter2" not in said
    secret = Secret(reference="env:X", environ={"X": "hunter2"})
    assert secret.reveal() == "hunter2"
    assert "hunter2" not in f"{secret!r} {secret}"


def test_who_takes_no_requests_needs_no_secret(tmp_path: Path) -> None:
    (tmp_path / "semel.toml").write_text(SOURCE + 'secrets = ["env:ABSENT", "file:/nowhere"]')

    settings = load({}, tmp_path, secrets=False)

    [source] = settings.sources.values()
    assert [secret.reference for secret in source.secrets] == ["env:ABSENT", "file:/nowhere"]
    with pytest.raises(BadConfig, match="env:ABSENT was not read"):
        source.secrets[0].reveal()
    with pytest.raises(BadConfig, match="set the variable ABSENT"):
        load({}, tmp_path)


def test_a_secret_that_is_written_out_is_refused_also_unread(tmp_path: Path) -> None:
    (tmp_path / "semel.toml").write_text(SOURCE + 'secrets = ["hunter2"]')

    with pytest.raises(BadConfig, match="a secret is written out"):
        load({}, tmp_path, secrets=False)


def test_a_secret_in_a_file_ends_before_its_last_line_ending(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("hunter2\n")
    assert Secret(reference=f"file:{tmp_path / 's'}").reveal() == "hunter2"
    with pytest.raises(BadConfig, match="cannot be read"):
        Secret(reference=f"file:{tmp_path / 'gone'}")
    (tmp_path / "s").write_text("\n")
    with pytest.raises(BadConfig, match="is empty"):
        Secret(reference=f"file:{tmp_path / 's'}")


def test_a_source_without_secrets_must_say_so(tmp_path: Path) -> None:
    said = refusal(tmp_path, SOURCE)
    assert "[sources.alerts] has no secrets" in said
    assert 'authenticate = "none"' in said
    settings = told(tmp_path, SOURCE + 'authenticate = "none"\n[server]\nhost = "0.0.0.0"')
    assert settings.sources["ops", "alerts"].secrets == ()


def test_one_made_by_hand_without_secrets_is_for_loopback_only() -> None:
    source = Source(name="alerts", channel="alertmanager", agent="triage")
    sources = {("default", "alerts"): source}
    assert Settings(sources=sources).server.is_loopback
    with pytest.raises(BadConfig, match=r"add secrets = \[.env:NAME.\]"):
        Settings(sources=sources, server=Server(host="0.0.0.0"))


HMAC = """
[sources.shop]
channel = "hmac"
agent = "a"
secrets = ["env:S"]
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HMAC, "says how it signs"),
        (HMAC + "hmac = 5", "[sources.shop.hmac] is 5: it is a table"),
        (HMAC + "hmac = {}", "name the header of the signature"),
        (HMAC + "hmac = { header = 'X Y' }", "name the header of the signature"),
        (HMAC + "hmac = { heder = 'X' }", "did you mean 'header'?"),
        (HMAC + "hmac = { header = 'X', id = 'X-Id' }", 'write "header:NAME", or "body:/a/b"'),
        (HMAC + "hmac = { header = 'X', id = 'body:a' }", 'or "content"'),
        (HMAC + "hmac = { header = 'X', event = 'content' }", "hmac] event is 'content'"),
        (HMAC + "hmac = { header = 'X', algorithm = 'md5' }", "one of sha256, sha384, sha512"),
        (HMAC + "hmac = { header = 'X', encoding = 'hexa' }", "did you mean 'hex'?"),
        (HMAC + "hmac = { header = 'X', signed = 'body' }", "has {body} once"),
        (HMAC + "hmac = { header = 'X', signed = '{body}{body}' }", "has {body} once"),
        (HMAC + "hmac = { header = 'X', signed = '{body}{url}' }", "has {body} once"),
        (HMAC + "hmac = { header = 'X', signed = '{timestamp}{body}' }", "go together"),
        (HMAC + "hmac = { header = 'X', timestamp = 'header:T' }", "go together"),
        (
            HMAC
            + "hmac = { header = 'X', timestamp = 'body:/t', signed = '{timestamp}{body}' }",
            'write "header:NAME"',
        ),
        (HMAC + "hmac = { header = 'X', signed = '{id}{body}' }", "which header it is in"),
        (HMAC + "hmac = { header = 'X', window = '2d' }", "window is 2d: 1s to 1d"),
        (HMAC + "hmac = { header = 'X', key = 'hex' }", "env:S is no secret: it is not hex"),
        (API + "hmac = { header = 'X' }\nsecrets = ['env:S']", "hmac is a setting of channel"),
        (API + "window = '1m'", "window is a setting of channel slack, standard, stripe"),
        (API + "content_window = '1m'", "is a setting of channel gitea, github, hmac"),
        (API + "authenticate = 'no'", "one of secret, none"),
        (API + "authenticate = 'none'\nsecrets = ['env:S']", "leave out one"),
        (
            "[sources.a]\nchannel='standard'\nagent='a'\nsecrets=['env:S']",
            "env:S is no secret: write whsec_",
        ),
        (
            "[sources.a]\nchannel='standard'\nagent='a'\nsecrets=['env:P']",
            "env:P is no secret: whpk_ and 32 bytes",
        ),
        (
            "[sources.a]\nchannel='discord'\nagent='a'\nsecrets=['env:S']",
            "env:S is no secret: write the application's public key",
        ),
    ],
)
def test_a_source_that_could_verify_nothing_is_refused(
    tmp_path: Path, text: str, sentence: str
) -> None:
    said = refusal(tmp_path, text, S="not-é", P="whpk_AAAA")
    assert sentence in said
    assert "not-é" not in said


def test_how_a_sender_signs_is_read_and_shown(tmp_path: Path) -> None:
    how = (
        "hmac = { header = 'X-Sig', signed = 'v0:{timestamp}:{body}', timestamp = 'header:T' }"
    )
    settings = told(tmp_path, HMAC + how, S="secret")
    signing = settings.sources["default", "shop"].hmac
    assert signing is not None
    assert (signing.algorithm, signing.encoding, signing.id) == ("sha256", "hex", "content")
    assert signing.parts == ["v0:", "timestamp", ":", "body", ""]
    shown = settings.shown()["sources"]["shop"]["hmac"]
    assert (shown["header"], shown["window"]) == ("X-Sig", "5m")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_is_known_by_its_names(host: str) -> None:
    assert Server(host=host).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "db.example"])
def test_anything_else_is_not_loopback(host: str) -> None:
    assert not Server(host=host).is_loopback


def test_testing_is_for_loopback_only(tmp_path: Path) -> None:
    assert told(tmp_path, SEMEL_TESTING="1").testing
    said = refusal(tmp_path, SEMEL_TESTING="1", SEMEL_SERVER_HOST="0.0.0.0")
    assert "listen on 127.0.0.1" in said


def test_what_is_shown_has_no_password(tmp_path: Path) -> None:
    for dsn in (
        "postgres://u:hunter2@h/d",
        "postgres://h/d?user=u&password=hunter2",
        "host=h password=hunter2 dbname=d",
        "host=h password = 'hunter2 hunter2' dbname=d",
        "host=h password=a hunter2 dbname=d",
        "postgresql://u:a/hunter2@h/db",
        "postgresql://u:12/hunter2@h/db",
        "postgresql://u:a?hunter2@h/db",
        "postgresql://u:a#hunter2@h/db",
        "postgresql://u:p%40:x@hunter2@h",
        "postgresql://u:hunter2@h:5432,i:5433/db",
        "hunter2",
    ):
        settings = told(tmp_path, SOURCE + 'secrets = ["env:X"]', SEMEL_DSN=dsn, X="hunter2")
        assert "hunter2" not in str(settings.shown())
        assert "hunter2" not in repr(settings)
    assert settings.shown()["worker"]["lease"] == "5m"
    assert settings.shown()["retention"]["operations"] == "never"
    assert settings.shown()["sources"]["alerts"]["secrets"] == ["env:X"]


def test_where_the_database_is_is_shown(tmp_path: Path) -> None:
    for dsn, shown in (
        ("postgresql://u:pw@h:5433/d", "host=h port=5433 dbname=d user=u"),
        ("host=/run dbname=d user=u password=pw", "host=/run dbname=d user=u"),
        ("postgresql:///d?host=/run", "host=/run dbname=d"),
        ("service=x", "set"),
    ):
        assert told(tmp_path, SEMEL_DSN=dsn).shown()["dsn"] == shown


def test_settings_made_by_hand_are_checked_too() -> None:
    with pytest.raises(BadConfig, match="lease is 500ms"):
        WorkerSettings(lease=timedelta(seconds=0.5))
    with pytest.raises(BadConfig, match="agent is ''"):
        Source(name="a", channel="api", agent="")


# -- notifiers and approvals ----------------------------------------------------------------

NOTIFIER = """
[notifiers.oncall]
kind = "telegram"
token = "env:SEMEL_BOT_TOKEN"
chat = -100123
"""


def test_notifiers_and_approvals_are_read(tmp_path: Path) -> None:
    settings = told(
        tmp_path,
        'public_url = "https://ops.test/semel/"\n[approvals]\nttl = "1h"\nnotify = ["oncall"]\n'
        + NOTIFIER
        + """
[notifiers.hook]
kind = "webhook"
url = "https://hooks.test/secret/path"
allow_private = ["10.1.0.0/16", "fd12::/16"]
""",
        SEMEL_BOT_TOKEN="1:a",
    )

    assert (settings.approvals.ttl, settings.approvals.notify) == (
        timedelta(hours=1),
        ("oncall",),
    )
    assert settings.links == "https://ops.test/semel"
    oncall, hook = settings.notifiers["oncall"], settings.notifiers["hook"]
    assert (oncall.kind, oncall.chat, oncall.allow_private) == ("telegram", "-100123", False)
    assert oncall.value("token", {"SEMEL_BOT_TOKEN": "1:a"}) == "1:a"
    assert [str(network) for network in hook.networks] == ["10.1.0.0/16", "fd12::/16"]


def test_a_process_that_sends_nothing_needs_no_notifier_s_secret(tmp_path: Path) -> None:
    assert told(tmp_path, NOTIFIER).notifiers["oncall"].token == "env:SEMEL_BOT_TOKEN"


def test_links_lead_to_this_machine_where_no_address_is_told(tmp_path: Path) -> None:
    assert told(tmp_path, SEMEL_PORT="9000").links == "http://127.0.0.1:9000"


def test_the_environment_says_who_is_told(tmp_path: Path) -> None:
    settings = told(
        tmp_path, NOTIFIER, SEMEL_APPROVALS_NOTIFY="oncall", SEMEL_APPROVALS_TTL="2h"
    )

    assert (settings.approvals.notify, settings.approvals.ttl) == (
        ("oncall",),
        timedelta(hours=2),
    )


def test_a_notifier_is_shown_without_its_secrets_and_paths(tmp_path: Path) -> None:
    settings = told(
        tmp_path, NOTIFIER + '[notifiers.h]\nkind = "webhook"\nurl = "https://h.test/secret"'
    )

    shown = settings.shown()
    assert shown["approvals"] == {"ttl": "15m", "notify": []}
    assert shown["notifiers"]["oncall"]["token"] == "env:SEMEL_BOT_TOKEN"
    assert shown["notifiers"]["h"]["url"] == "https://h.test"
    assert "/secret" not in str(shown)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("notifiers = 1", "[notifiers] is 1: it is a table"),
        ("[notifiers]\nx = 1", "[notifiers.x] is 1: it is a table"),
        ("[notifiers.x]\nurl = 'https://h'", "[notifiers.x] has no kind"),
        ("[notifiers.x]\nkind = 'slak'", "(did you mean 'slack'?)"),
        ("[notifiers.x]\nkind = 'line'\ntoken = 'env:T'", "[notifiers.x] has no to"),
        ("[notifiers.x]\nkind = 'slack'", "[notifiers.x] has no token"),
        (
            "[notifiers.x]\nkind = 'line'\ntoken = 'abc'\nto = 'U'",
            "token is a secret, written out",
        ),
        ("[notifiers.x]\nkind = 'slack'\nurl = 'https://h'", "url is a secret, written out"),
        (
            "[notifiers.x]\nkind = 'webhook'\nurl = 'https://h'\nchat = '1'",
            "chat is no setting of",
        ),
        (
            "[notifiers.x]\nkind = 'webhook'\nurl = 'https://h'\nchta = '1'",
            "did you mean 'chat'",
        ),
        ("[notifiers.x]\nkind = 'webhook'\nurl = 'http://h'", "begins with http"),
        ("[notifiers.x]\nkind = 'webhook'\nurl = 'https://u:p@h'", "user or password"),
        ("[notifiers.x]\nkind = 'webhook'\nurl = ' '", "url is empty"),
        ("[notifiers.x]\nkind = 'webhook'\nurl = 5", "url is 5: write text in quotes"),
        (
            "[notifiers.x]\nkind = 'slack'\nurl = 'env:U'\ntoken = 'env:T'",
            "has url and token: an incoming webhook needs url only",
        ),
        (
            "[notifiers.x]\nkind = 'webhook'\nurl = 'https://h'\nallow_private = '10.0.0.0/8'",
            "write true, or a list of networks",
        ),
        (
            "[notifiers.x]\nkind = 'webhook'\nurl = 'https://h'\nallow_private = ['10.0.0.1/8']",
            "has host bits set; write networks as in",
        ),
        ("[notifiers.'a b']\nkind = 'webhook'\nurl = 'https://h'", "name is 'a b'"),
        ("[approvals]\nttl = '0s'", "[approvals] ttl is 0s: 1s to 366d"),
        ("[approvals]\nttl = 900", "write a number with its unit"),
        ("[approvals]\nnotify = 'bob'", "write a list of texts"),
        ("[approvals]\nnotify = ['bob']", "add [notifiers.bob]"),
        ("[approvals]\nnotify = ['oncall', 'oncall']" + NOTIFIER, "names oncall twice"),
        ("public_url = 'ftp://x'", "semel.toml public_url is no web address"),
        ("public_url = 'https://u@x'", "user or password"),
        ("public_url = 'https://x?a'", "has a ?"),
    ],
)
def test_a_notifier_that_cannot_be_is_refused_with_the_mend(
    tmp_path: Path, text: str, sentence: str
) -> None:
    assert sentence in refusal(tmp_path, text)
