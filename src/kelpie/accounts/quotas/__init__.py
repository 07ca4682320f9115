"""Quotas of organizations: the limits that hold, what is used of them, and what was spent."""
