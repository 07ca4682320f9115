"""Letta's V1 REST API, one package per resource. The only place that knows Letta's JSON."""
