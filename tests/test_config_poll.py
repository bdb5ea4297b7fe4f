"""A source that polls is refused at the start where it could never poll."""

from pathlib import Path
from typing import Any

import pytest

from semel import config
from semel.config.poll import PollSettings, bot
from semel.errors import BadConfig

ENV = {"A": "111:AAone", "A2": "111:AAtwo", "B": "222:BBone", "BAD": "nothing"}


def load(tmp_path: Path, text: str, **environ: str) -> config.Settings:
    (tmp_path / "semel.toml").write_text(text)
    return config.load({**ENV, **environ}, tmp_path)


def source(name: str = "bot", secrets: str = '"env:A"', **more: str) -> str:
    lines = "\n".join(f"{key} = {value}" for key, value in more.items())
    return f'[sources.{name}]\nchannel = "telegram-poll"\nagent = "a"\nsecrets = [{secrets}]\n{lines}\n'


def poll(name: str = "bot", **more: str) -> str:
    return source(name, poll="{ " + ", ".join(f"{k} = {v}" for k, v in more.items()) + " }")


def test_settings_of_a_poll_are_read(tmp_path: Path) -> None:
    text = poll(
        api='"http://127.0.0.1:8081/x/"',
        timeout='"30s"',
        limit="5",
        allowed_updates='["message"]',
        lease='"1m"',
    )
    [found] = load(tmp_path, text).sources.values()
    assert found.poll is not None
    assert (found.poll.timeout.total_seconds(), found.poll.limit) == (30, 5)
    assert found.poll.allowed_updates == ("message",)
    assert bot(found) == "111@http://127.0.0.1:8081/x"


def test_a_bot_is_told_apart_by_its_id_and_server_and_never_by_its_token(
    tmp_path: Path,
) -> None:
    [found] = load(tmp_path, source(secrets='"env:A", "env:A2"')).sources.values()
    assert bot(found) == "111@https://api.telegram.org"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (source(secrets='"env:BAD"'), "env:BAD is no secret: write the bot's token"),
        (source(secrets='"env:A", "env:B"'), "tokens of 2 bots"),
        (source() + source("two", '"env:A2"'), r"both of bot 111@https://api.telegram.org"),
        (source(secrets=""), "has no secrets"),
        (source(secrets="", authenticate='"none"'), 'authenticate = "none"'),
        (poll(timeout='"51s"'), r"\[sources.bot.poll\] timeout is 51s: 1s to 50s"),
        (poll(timeout='"0s"'), "timeout is 0s"),
        (poll(timeout='"1500ms"'), "whole seconds"),
        (poll(limit="101"), "limit is 101: 1 to 100"),
        (poll(lease='"2s"'), "lease is 2s"),
        (poll(api='"ftp://x"'), "api is no web address"),
        (poll(api='"https://x/?y"'), r"api has a \?"),
        (poll(api='"http://example.com"'), "allow_http = true"),
        (poll(allowed_updates='["Message"]'), "allowed_updates has 'Message'"),
        (poll(ofset="1"), "unknown key 'ofset'"),
        ('[sources.b]\nchannel = "telegram"\nagent = "a"\nsecrets = ["env:A"]\npoll = {}\n', "poll is a setting of channel telegram-poll"),
    ],
)  # fmt: skip
def test_what_could_never_poll_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadConfig, match=said) as refused:
        load(tmp_path, text)
    assert "AAone" not in str(refused.value)


def test_a_bot_of_two_projects_is_refused_in_one_file(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="both of bot"):
        load(tmp_path, source() + source("two", '"env:A2"', project='"q"'))


def test_bots_of_two_servers_are_two(tmp_path: Path) -> None:
    text = source() + source("two", poll='{ api = "http://localhost:8081" }')
    assert len(load(tmp_path, text).sources) == 2


def test_http_is_allowed_where_it_is_said(tmp_path: Path) -> None:
    assert load(tmp_path, poll(api='"http://bots.internal"', allow_http="true")).sources


@pytest.mark.parametrize("api", ["http://127.0.0.1", "http://[::1]:80", "http://localhost:1"])
def test_http_to_this_machine_is_nobody_elses_to_hear(api: str) -> None:
    told: dict[str, Any] = {"api": api}
    assert PollSettings(source="bot", **told).server.scheme == "http"
