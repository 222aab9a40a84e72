"""The exceptions of this package."""


class AdpsgdError(Exception):
    """Something the user can mend: the message says what, which learner, expected and found, and what to do."""


class ExchangeError(AdpsgdError):
    """An exchange with other learners has failed: most likely one of them has gone."""
