"""Results of saved runs as numbers: summaries, comparisons, leaderboards, plans, report data.

What belongs here: functions from `TaskRun`s to records of results. What does not: reading files
(`runs`), statistical methods for outcomes (`stats`), and tables, pages or texts (`report`,
`export`, `cli`).
"""
