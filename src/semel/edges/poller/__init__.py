"""
Poller: asks a bot's server for events, where nobody can post them to us.

What came is committed together with how far that is, and only then is the server told to forget
it. Who may ask is a lease in the database; see sql/functions/polls.sql.
"""
