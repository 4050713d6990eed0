"""`kill -9` of a real server, again and again, under real clients, and what has to be there afterwards.

loads    clients that never stop, and a note of all that was acknowledged to them
season   kills of one server on one data directory, and the checks at their end
"""
