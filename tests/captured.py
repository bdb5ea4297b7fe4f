"""The corpus of requests, and what a server must be told and must answer for each of them."""

from typing import Any

from web import BASE, CORPUS

Entry = dict[str, Any]
#: Published vectors are of their own time.
VECTOR_CLOCKS = {"slack": 1531420618.0, "standard": 1614265330.0}
SEEN = {"duplicate", "reminder", "redelivery", "late"}
#: What a provider wants to hear of a new event instead of 201.
NEW = {"slack": 200, "line": 200, "discord": 200}
#: What is malformed to a caller that reads its answers is 400; a forged request is 401.
REJECTED = {"api": 400, "cloudevents": 400}

ENTRIES: list[Entry] = [
    *(each for each in CORPUS["captured_alertmanager"] if each["method"] == "POST"),
    *CORPUS["constructed"],
]


def source_of(entry: Entry) -> str:
    """The source that an entry is posted to."""
    path = entry["path"].partition("?")[0].removeprefix("/in/").strip("/")
    return "am-redir" if path.startswith("am-redir") else str(path)


def channel_of(entry: Entry) -> str:
    return str(entry.get("channel", "alertmanager"))


def clock_of(entry: Entry) -> float:
    if "t_offset_s" in entry:
        return BASE + float(entry["t_offset_s"])
    if entry["verdict"] == "vector":
        return VECTOR_CLOCKS.get(channel_of(entry)) or float(entry["clock"])
    return float(entry["clock_override" if "clock_override" in entry else "clock"])


def headers_of(entry: Entry, clock: float | None = None) -> list[tuple[str, str]]:
    told = [
        (name, value)
        for name, value in entry["headers"]
        if name.lower() not in {"host", "content-length", "connection"}
    ]
    return [*told, ("X-Semel-Test-Clock", str(clock_of(entry) if clock is None else clock))]


def news_of(entry: Entry) -> int:
    """How many new events the entry makes."""
    if "expect_new" in entry:
        return len(entry["expect_new"])
    is_new = entry["verdict"] == "new" or (
        entry["verdict"] == "vector" and channel_of(entry) != "github"
    )
    return int(is_new)


def fault_of(entry: Entry, status: int, verdicts: list[str]) -> str | None:
    """What is wrong with an answer; None: nothing."""
    channel, label = channel_of(entry), entry["verdict"]
    if label == "vector":  # GitHub's is authentic, and no JSON
        label = "quarantined" if channel == "github" else "new"
    wanted = {
        "new": (NEW.get(channel, 201), {"new"}),
        "duplicate": (200, SEEN),
        "reject": (REJECTED.get(channel, 401), {"refused"}),
        "ignore": (200, {"ignored"}),
        "conflict": (422, {"conflict"}),
        "quarantined": (200, {"quarantined"}),
    }[label]
    if status == wanted[0] and verdicts and set(verdicts) <= wanted[1]:
        return None
    return f"{entry['id']}: {status} {verdicts}, not {label}: {entry['note']}"


def settings_of(name: str, entry: Entry) -> tuple[dict[str, str], str | None]:
    """The lines of a source in semel.toml, and its secret."""
    channel = channel_of(entry)
    lines = {"channel": f'"{channel}"', "agent": '"a"'}
    secret = entry.get("secret") or entry.get("public_key")
    if channel == "alertmanager":
        lines |= {"resolved_grace": '"5s"', "run_on": '"firing+resolved"'}
    if channel == "api":
        lines["require_key"] = "true"
        secret = "key_live_1"
    if secret is None:
        lines["authenticate"] = '"none"'
    else:
        lines["secrets"] = f'["env:{variable(name)}"]'
    return lines, secret


def variable(name: str) -> str:
    return f"SECRET_{name.upper().replace('-', '_')}"


def toml() -> tuple[str, dict[str, str]]:
    """A semel.toml with every source of the corpus, and the environment that it refers to."""
    first: dict[str, Entry] = {}
    for entry in ENTRIES:
        first.setdefault(source_of(entry), entry)
    text, environ = [], {}
    for name, entry in first.items():
        lines, secret = settings_of(name, entry)
        text += [f"[sources.{name}]", *(f"{key} = {value}" for key, value in lines.items())]
        if secret is not None:
            environ[variable(name)] = secret
    return "\n".join(text), environ
