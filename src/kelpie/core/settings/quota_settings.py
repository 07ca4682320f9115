"""Settings of quotas: what every organization may use, except the default one, which belongs to the operator."""

from dataclasses import dataclass

from kelpie.core.permissions.organization_limits import LIMIT_MAX, OrganizationLimits
from kelpie.core.settings.declaration import setting


@dataclass(frozen=True)
class QuotaSettings:
    """Limits of an organization that has none of its own. They do not hold for the default organization."""

    quota_requests_per_minute: int = setting(
        "quotas.requests_per_minute",
        "Requests that an organization may make in a minute; more get a 429. 0 is no limit. Quotas do not hold for the "
        "default organization unless they are set for it.",
        "KELPIE_QUOTA_REQUESTS_PER_MINUTE",
        default=6000,
        low=0,
        high=LIMIT_MAX,
    )
    quota_agents: int = setting(
        "quotas.agents",
        "Agents that an organization may have; one more gets a 507. 0 is no limit.",
        "KELPIE_QUOTA_AGENTS",
        default=10_000,
        low=0,
        high=LIMIT_MAX,
    )
    quota_messages: int = setting(
        "quotas.messages",
        "Messages that an organization may have stored; then a new message to an agent gets a 507. 0 is no limit.",
        "KELPIE_QUOTA_MESSAGES",
        default=5_000_000,
        low=0,
        high=LIMIT_MAX,
    )
    quota_files: int = setting(
        "quotas.files",
        "Files that an organization may have in its folders; one more gets a 507. 0 is no limit.",
        "KELPIE_QUOTA_FILES",
        default=100_000,
        low=0,
        high=LIMIT_MAX,
    )
    quota_stored_mb: int = setting(
        "quotas.stored_mb",
        "Size in MB of the texts and JSON that an organization may have stored in the database; what would add to it "
        "gets a 507. 0 is no limit.",
        "KELPIE_QUOTA_STORED_MB",
        default=20_480,
        low=0,
        high=LIMIT_MAX,
    )
    quota_disk_mb: int = setting(
        "quotas.disk_mb",
        "Size in MB of the files that the workspaces of an organization's agents may have together; then tool calls "
        "that write files are refused. 0 is no limit.",
        "KELPIE_QUOTA_DISK_MB",
        default=20_480,
        low=0,
        high=LIMIT_MAX,
    )

    @property
    def organization_limits(self) -> OrganizationLimits:
        """The limits of an organization that has none of its own."""
        return OrganizationLimits(
            requests_per_minute=self.quota_requests_per_minute,
            agents=self.quota_agents,
            messages=self.quota_messages,
            files=self.quota_files,
            stored_mb=self.quota_stored_mb,
            disk_mb=self.quota_disk_mb,
        )
