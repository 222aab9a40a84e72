"""The one exception of this package."""


class AdpsgdError(Exception):
    """Something the user can mend: the message says what, which learner, expected and found, and what to do."""
