"""
The process that works: claim, beat, handle, complete or fail; and the upkeep beside it.

Who decides: the SQL decides who holds a run and what a write does; this room decides only when
to ask. A handler never runs here without a lease that this process still trusts.
"""
