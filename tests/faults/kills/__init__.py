"""Repeated `kill -9` of a real server under real clients, and the checks of its data afterwards.

loads    clients that never stop, and record all acknowledgements
season   kills of one server on one data directory, and the checks at their end
"""
