"""`LakeError`, with which a command of the audit ends."""


class LakeError(Exception):
    """Raised if the lake or the spool cannot be used. The message is one sentence with the reason."""
