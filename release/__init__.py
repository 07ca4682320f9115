"""Tools of the maintainers: pins with hashes, the release files, and the audit of the pins. No part of the product."""
