"""`LakeError`: ends a command of the audit. `cli` catches it, and prints its message."""


class LakeError(Exception):
    """Raised if the lake or the spool cannot be used. The message is one sentence with the reason."""
