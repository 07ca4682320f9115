"""Limits on calls to providers: concurrent calls, and tokens and money per period."""
