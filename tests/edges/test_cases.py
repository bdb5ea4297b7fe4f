"""The public scenarios C4 and C5, whole; C1 to C3 are in test_ingress, C6 in sql/test_retention."""

import json

import signing
from fix_channels import KEY, Conn, line, post, said
from signing import FORM
from web import Web, count


def test_c4_line_s_batch_is_each_event_once_also_after_a_failed_transaction(
    channels_web: Web, conn: Conn
) -> None:
    assert said(post(channels_web, "line", line("e1", "e2"))) == "200 new, new"
    again = line("e2", "e3")
    again["events"][0]["deliveryContext"] = {"isRedelivery": True}
    with conn.transaction():
        conn.execute("lock table semel.dedupe in access exclusive mode")
        failed = post(channels_web, "line", again)
    assert failed.status_code == 503
    assert count(conn, "events") == count(conn, "runs") == 2
    assert said(post(channels_web, "line", again)) == "200 duplicate, new"
    assert count(conn, "events", "provider_event_id in ('e1', 'e2', 'e3')") == 3
    assert count(conn, "runs") == 3

    before = count(conn, "deliveries")
    assert (
        said(post(channels_web, "line", {"destination": "U0", "events": []})) == "200 ignored"
    )
    assert count(conn, "deliveries") == before

    strange = line("e4", "e5", "e6")
    strange["events"][1]["mode"] = "upside-down"
    answer = post(channels_web, "line", strange)
    assert answer.status_code == 200
    assert answer.headers["semel-verdict"].count("new") == 2
    assert count(conn, "events", "provider_event_id in ('e4', 'e6')") == 2
    assert count(conn, "runs") == 5


def test_c5_gitea_s_redelivery_is_recorded_and_form_and_get_verify_over_the_json(
    channels_web: Web, conn: Conn
) -> None:
    body = json.dumps({"ref": "refs/heads/main"}, indent=2).encode()
    first = post(channels_web, "gitea", body, signing.gitea(KEY, body, "uuid-1"))
    again = post(channels_web, "gitea", body, signing.gitea(KEY, body, "uuid-2"))
    assert (said(first), said(again)) == ("201 new", "200 redelivery")
    assert again.json()["run_id"] == first.json()["run_id"]
    assert count(conn, "deliveries", "verdict = 'redelivery'") == count(conn, "runs") == 1

    other = json.dumps({"ref": "refs/heads/form"}, indent=2).encode()
    told = [*signing.gitea(KEY, other, "uuid-3"), FORM]
    assert said(post(channels_web, "gitea", signing.payload(other), told)) == "201 new"
    asked = json.dumps({"ref": "refs/heads/get"}, indent=2).encode()
    query = signing.payload(asked).decode()
    answer = channels_web.send(
        "GET", f"/in/default/gitea?{query}", headers=signing.gitea(KEY, asked, "uuid-4")
    )
    assert said(answer) == "201 new"
    assert count(conn, "runs") == 3

    for empty in ("x-gitea-signature", "x-hub-signature-256", "x-forgejo-signature"):
        bare = [("x-gitea-delivery", "uuid-5"), ("x-gitea-event", "push"), (empty, "")]
        assert said(post(channels_web, "gitea", body, bare)) == "401 refused"
    assert count(conn, "runs") == 3
