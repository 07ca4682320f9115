"""Sources of the values of settings: options, environment, kelpie.toml, and their order of precedence."""
