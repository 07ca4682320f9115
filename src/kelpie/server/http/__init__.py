"""Parts that all HTTP routes share: bodies, answers, errors, paging, server-sent events."""
