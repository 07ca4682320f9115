"""Codes of the server as a program: its start, settings, keys and logs."""

from kelpie.core.codes.code import Code

CODES = (
    Code(
        "encryption_key_created",
        "The server made the key that encrypts stored secrets.",
        "Keep a copy of the file in a safe place.",
    ),
    Code(
        "encryption_key_rotating",
        "A new key became current. The server encrypts all secrets with it.",
    ),
    Code(
        "encryption_rotation_delayed",
        "A rotation of the encryption key could not go on. The server tries again in `retry_s` seconds.",
        "Look at `error`; check the disk.",
    ),
    Code(
        "library_message",
        "A library logged this line. `component` names the library.",
    ),
    Code(
        "log_lines_lost",
        "`lost` log lines could not be written.",
        "Check the disk of the data directory.",
    ),
    Code(
        "open_files_limit_low",
        "The process may open at most `limit` files, so few clients can connect.",
        "Raise the limit (`LimitNOFILE` in systemd, `ulimit -n`).",
    ),
    Code(
        "plain_text_backup",
        "The secrets of an older database were encrypted. The backup that was made before holds them as plain text.",
        "Delete `kelpie.db.schema-0001.backup` when you no longer need it.",
    ),
    Code(
        "secrets_encrypted",
        (
            "All secrets that can be read are encrypted with the current key. Keys in `unused_keys` are no longer "
            "needed."
        ),
        "Remove unused keys from `KELPIE_ENCRYPTION_KEY`, if you set it.",
    ),
    Code(
        "server_exposed",
        "The server listens on an address that other machines can reach, without encryption.",
        "Put a proxy with TLS in front of it.",
    ),
    Code(
        "server_start_failed",
        "The server could not start.",
        "Follow `error`.",
    ),
    Code(
        "server_started",
        "The server takes requests at `host` and `port`.",
    ),
    Code(
        "server_stopped",
        "The server has stopped.",
    ),
    Code(
        "setting_wrong",
        "A setting is wrong. The text begins with its name.",
        "Correct it as the text says. See [settings](settings.md).",
    ),
    Code(
        "settings_file_loaded",
        "Settings were read from the file `path`.",
    ),
    Code(
        "unknown_variable",
        "An environment variable begins with `KELPIE_` and is not a setting.",
        "Rename it, perhaps to `closest`, or remove it.",
    ),
)
