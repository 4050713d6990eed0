"""Errors that end a command of the audit with one sentence."""


class LakeError(Exception):
    """The lake or the spool cannot be used; the message says why."""
