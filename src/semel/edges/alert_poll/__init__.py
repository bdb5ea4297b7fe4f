"""The poll of Alertmanager's API: `api` asks it, `differences` reads it, `poll` makes it good."""
