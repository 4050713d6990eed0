"""Limits for state that clients create: a total for each table that clients can grow, and a share for each owner.

ledger    the amount in use, in total and by owner
tables    all tables, their declarations and their ledgers
owners    the creators of entries, across restarts
"""
