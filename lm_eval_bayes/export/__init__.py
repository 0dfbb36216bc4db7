"""Results as files for other tools: hub results, Every Eval Ever records, leaderboard tables.

What belongs here: a format and its escaping. What does not: computing a result.
"""
