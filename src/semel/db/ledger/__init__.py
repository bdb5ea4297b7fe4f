"""
Connections that the ledger works on: psycopg, asyncpg, SQLAlchemy and Django.

One class for each, with the same few verbs (`driver.Driver`): claim, seal, fail, leave, abort and
ask elsewhere. They know how their driver begins and ends a transaction in the fewest round trips,
and keep its framework's idea of that transaction true. What an operation's outcome is, they do not
decide.
"""

from semel.db.ledger.choose import driver_of

__all__ = ["driver_of"]
