"""The deterministic event loop: schedules, virtual time, trace and tape."""
