"""
Tools: what runs call outside, one room for each way to reach it.

`agent` is the handler of the agent `semel.tool`; a server turns a call into one exchange. Whether
a call may be sent, and sent again, the SQL decides, before anything leaves.
"""
