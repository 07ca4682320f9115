"""The share of one organization: how many slots it may hold at once, so that others need not wait for its long jobs.

Turns alone are not enough where a job may take an hour: an organization that holds every slot keeps all others waiting
until one of its jobs ends. So it may hold only a share of the slots that others leave to it. A server with one
organization has nobody to keep slots for, and the share is not in force.
"""

DEFAULT_FRACTION = 0.75


class OrganizationShare:
    """The share of a server. `organizations` is their number, which the app keeps up to date."""

    def __init__(self, fraction: float = DEFAULT_FRACTION, organizations: int = 1) -> None:
        self.fraction = fraction
        self.organizations = organizations

    def allows(self, held: int, more: int, free: int) -> bool:
        """Checks whether an organization that holds so much may take so much more of what is free.

        What holds nothing may always take some: else a large job would never start.
        """
        return held == 0 or self.organizations < 2 or held + more <= self.fraction * (held + free)
