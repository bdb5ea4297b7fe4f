"""
Notifiers: tell a person that an approval waits.

`notify` is the handler of the agent `semel.notify`; a notifier turns a message into one request;
`post` sends it, and only to where `guard` lets it. No secret and no link is ever in a result, an
error or the log.
"""
