"""What ruff's banned-api cannot see: raw sources reached through builtins, methods and names it does not list.

Used by test_raw_sources.py on every module outside `world/`.
"""

import ast
from collections.abc import Iterator

# Everything else in these modules reads or changes the outside world.
HARMLESS = {
    "os": {"environ", "getpid", "fspath", "sep", "pathsep", "linesep", "PathLike", "path", "strerror"},
    "os.path": {"join", "basename", "dirname", "splitext", "split", "normpath", "isabs", "commonpath", "sep"},
    "random": {"Random"},
    "signal": {"SIGINT", "SIGTERM", "Signals", "SIGHUP"},
}
PATH_METHODS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "touch", "mkdir", "rmdir", "unlink", "rename"),
    *("iterdir", "rglob", "exists", "is_file", "is_dir", "stat", "lstat", "chmod", "symlink_to", "resolve"),
    *("expanduser", "hardlink_to", "samefile", "is_symlink", "readlink"),
}
PATH_STARTS = {"cwd", "home"}


def violations(source: str) -> Iterator[tuple[int, str]]:
    """Line and sentence for each raw source that the module touches."""
    tree = ast.parse(source)
    names = _imported(tree)
    uses_paths = any(name.split(".")[0] == "pathlib" for name in names.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _call(node, names, uses_paths)
        if isinstance(node, ast.Attribute | ast.Name):
            yield from _reference(node, names)
        if isinstance(node, ast.ImportFrom) and node.module in HARMLESS:
            for alias in node.names:
                if alias.name not in HARMLESS[node.module]:
                    yield node.lineno, f"{node.module}.{alias.name} is a raw source"


def _imported(tree: ast.AST) -> dict[str, str]:
    """Local name -> qualified name."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _qualified(node: ast.expr, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _qualified(node.value, names)
        return f"{base}.{node.attr}" if base else None
    return None


def _call(node: ast.Call, names: dict[str, str], uses_paths: bool) -> Iterator[tuple[int, str]]:
    target = node.func
    if isinstance(target, ast.Name) and target.id in ("open", "__import__", "exec", "eval") and target.id not in names:
        yield node.lineno, f"the builtin {target.id} is for world/ only"
    qualified = _qualified(target, names) or ""
    ours = qualified.startswith("kelpie.")  # a class method of ours, such as DataDir.open
    if uses_paths and not ours and isinstance(target, ast.Attribute) and target.attr in PATH_METHODS | PATH_STARTS:
        yield node.lineno, f".{target.attr}() in a module that uses pathlib touches files"
    match qualified:
        case "random.Random" if not node.args:
            yield node.lineno, "random.Random() without a seed is not repeatable"
        case "httpx.AsyncClient" if not any(keyword.arg == "transport" for keyword in node.keywords):
            yield node.lineno, "httpx.AsyncClient needs transport=world.http.transport()"
        case _:
            pass


def _reference(node: ast.Attribute | ast.Name, names: dict[str, str]) -> Iterator[tuple[int, str]]:
    qualified = _qualified(node, names)
    if qualified is None or "." not in qualified:
        return
    module, _, name = qualified.rpartition(".")
    if module in HARMLESS and name not in HARMLESS[module]:
        yield node.lineno, f"{qualified} is a raw source"
