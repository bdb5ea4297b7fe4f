"""
The page that a person gets behind an approval's link, as HTML.

It works without a script, on a phone, in light and dark; the one script only counts down, by the
seconds that the database said were left. Every text that is not ours is escaped, and what does
not print (a change of writing direction, say) is spelled out, so that nothing looks like
something else. Nothing here decides, and the token stands nowhere in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC
from html import escape
from typing import TYPE_CHECKING, Any

from semel.edges.ballot import REASON_CHARS_MAX

if TYPE_CHECKING:
    from datetime import datetime

    from semel.core.approvals import Approval

#: Between words of Chinese and Japanese.
_WIDE_SPACE = "\u3000"

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --yes: #176b2c; --no: #a3161f; }
body { font: 1.05rem/1.5 system-ui, sans-serif; margin: 0; overflow-wrap: anywhere; }
main { max-width: 42rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 1rem 0; }
dt { opacity: .75; } dd { margin: 0; }
pre { border: 1px solid var(--line); border-radius: .5rem; padding: .75rem; margin: 0;
  white-space: pre-wrap; font-size: .95rem; }
code { font-size: .85rem; }
textarea { width: 100%; box-sizing: border-box; font: inherit; padding: .5rem; }
.state { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .75rem; }
.buttons { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; }
button { flex: 1 1 10rem; min-height: 3.5rem; font: inherit; font-weight: 600; color: #fff;
  border: 0; border-radius: .5rem; cursor: pointer; }
button:disabled { opacity: .4; cursor: default; }
button[value=approve] { background: var(--yes); } button[value=reject] { background: var(--no); }
button:focus-visible, textarea:focus-visible { outline: 3px solid Highlight; outline-offset: 2px; }
"""

_SCRIPT = """
(function () {
  var left = document.getElementById('left');
  if (!left) return;
  var end = performance.now() + 1000 * Number(left.dataset.seconds);
  var timer = setInterval(tell, 500);
  function tell() {
    var s = Math.max(0, Math.ceil((end - performance.now()) / 1000));
    left.textContent = s ? Math.floor(s / 60) + ' min ' + s % 60 + ' s left' : 'its time is over';
    if (!s) {
      clearInterval(timer);
      document.querySelectorAll('button').forEach(function (b) { b.disabled = true; });
    }
  }
  tell();
})();
"""


def _sha256(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


#: With every answer of the page, whatever its form and status.
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src '{_sha256(_STYLE)}'; script-src '{_sha256(_SCRIPT)}';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
}

# A form on a page with the policy no-referrer is sent with `Origin: null`, and over plain http
# without Sec-Fetch-Site: nothing would tell it from a stranger's. So the page itself, from which no
# link leads away, names its origin to its own origin only.
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="same-origin">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
"""


def question(asked: Approval) -> str:
    """The question, with its buttons where the one it was sent to may still decide it."""
    title = _text(asked.title)
    body = [f"<h1>{title}</h1>", f'<p class="state">{_state(asked)}</p>', _facts(asked)]
    body.append("<h2>What would be done</h2>")
    body.append(f"<pre>{_pretty(asked.action)}</pre>")
    if asked.state == "PENDING" and _may(asked):
        body.append(_form(asked))
    return _page(f"Approve? {title}", "\n".join(body))


def message(title: str, *paragraphs: str) -> str:
    """A page that says what became of it."""
    said = "\n".join(f"<p>{_text(each)}</p>" for each in paragraphs if each)
    return _page(_text(title), f"<h1>{_text(title)}</h1>\n{said}")


def moment(at: datetime) -> str:
    """A time to the second, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def outcome(asked: Approval) -> str:
    """What is recorded of a decided question, in a sentence."""
    when = f" at {moment(asked.decided_at)}" if asked.decided_at else ""
    by = f" by {', '.join(asked.decided_by)}" if asked.decided_by else ""
    why = f": {asked.reason}" if asked.reason else ""
    return f"It was {asked.state.lower()}{when}{by}{why}"


def _state(asked: Approval) -> str:
    if asked.state != "PENDING":
        return _text(outcome(asked))
    said = "Nothing has been decided yet."
    if asked.recipient in asked.decided_by:
        said = "You have approved it; others are asked too, and you may still reject it."
    elif not _may(asked):
        said = "You may see this, but not decide it: others are asked."
    if asked.need > 1:
        said += f" {asked.approvals} of {asked.need} approvals so far"
        said += f", from {', '.join(asked.decided_by)}." if asked.decided_by else "."
    return _text(said)


def _facts(asked: Approval) -> str:
    seconds = max(0, int(asked.seconds_left))
    expires = (
        f'<time datetime="{asked.expires_at.astimezone(UTC).isoformat()}">'
        f"{moment(asked.expires_at)}</time>"
    )
    if asked.state == "PENDING":
        left = f"{seconds // 60} min {seconds % 60} s left"
        expires += f', <span id="left" data-seconds="{seconds}">{left}</span>'
    rows = [
        ("Agent", _text(asked.agent or "-")),
        ("Project", _text(asked.project)),
        ("Run", f"<code>{asked.run_id}</code>"),
        ("Asked by", _text(asked.requester or f"agent {asked.agent or '-'}")),
        ("Asked of", _text(asked.recipient or "-")),
        ("Asked at", moment(asked.created_at)),
        ("Expires", expires),
        ("Approvals", f"{asked.approvals} of {asked.need}"),
        ("Digest", f"<code>{_text(asked.digest)}</code>"),
    ]
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{told}</dd>" for name, told in rows) + "</dl>"


def _form(asked: Approval) -> str:
    # A text area and no line of text: Enter in a line would press the first button.
    approve = '<button type="submit" name="decision" value="approve">Approve</button>\n'
    if asked.recipient in asked.decided_by:
        approve = ""
    return f"""<form method="post">
<input type="hidden" name="digest" value="{_text(asked.digest)}">
<h2><label for="reason">Reason (optional)</label></h2>
<textarea id="reason" name="reason" rows="2" maxlength="{REASON_CHARS_MAX}"></textarea>
<div class="buttons">
{approve}<button type="submit" name="decision" value="reject">Reject</button>
</div>
</form>"""


def _may(asked: Approval) -> bool:
    return asked.recipient != asked.requester and (
        asked.approvers is None or asked.recipient in asked.approvers
    )


def _pretty(action: Any) -> str:
    return "\n".join(
        _text(line)
        for line in json.dumps(action, ensure_ascii=False, indent=2, sort_keys=True).split("\n")
    )


def _text(told: str) -> str:
    """*told* as HTML, with what does not print spelled out."""
    return escape(
        "".join(
            char
            if char.isprintable() or char == _WIDE_SPACE
            else char.encode("unicode_escape").decode()
            for char in told
        )
    )


def _page(title: str, body: str) -> str:
    head = _HEAD.format(title=title, style=_STYLE)
    return f"{head}{body}\n</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
