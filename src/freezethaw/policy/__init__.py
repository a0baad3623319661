"""Policies: which run to start or thaw next. Pure functions; the random generator is an argument.

`entropy_search` is the paper's policy (section 5). `improvement_rate` is the default and uses `surprise` and
`depth`; `costs` serves both. `acquisition` holds what the policies share.
"""
