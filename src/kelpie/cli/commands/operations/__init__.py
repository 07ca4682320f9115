"""Commands for operators: settings, keys, secrets, logs and the doctor."""
