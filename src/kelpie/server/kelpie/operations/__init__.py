"""Kelpie's own resources for operators: health, logs, stored data, encryption, sandbox, and usage of organizations."""
