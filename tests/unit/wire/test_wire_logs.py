"""No secret reaches a log line."""

from __future__ import annotations

from wire import logs, token


def test_secrets_are_blanked_by_key_and_by_shape():
    secret = token.mint(b"k" * 32, "att_1", 1)
    event = logs.redact(None, "", {"event": f"got {secret}", "token_key": "abc", "api_key": "d", "attempt_id": "att_1"})
    assert event == {
        "event": "got [redacted]",
        "token_key": logs.REDACTED,
        "api_key": logs.REDACTED,
        "attempt_id": "att_1",
    }
