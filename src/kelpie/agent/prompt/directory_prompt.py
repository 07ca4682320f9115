"""Attached folders as the model is shown them: XML-like text with the content of the open files. Pure.

The text of a file stands there as it is, not escaped, so that the model can quote it.
"""

from collections.abc import Sequence

from kelpie.core.agents.agent import Agent
from kelpie.core.files.files import Directory, FileView
from kelpie.storage.files.views import limits


def render_directories(agent: Agent, directories: Sequence[Directory]) -> str:
    """The folders in the order given, or nothing when there are none."""
    if not directories:
        return ""
    most, chars = limits(agent)
    opened = sum(view.is_open for directory in directories for view in directory.files)
    lines = ["<directories>", "<file_limits>", f"- current_files_open={opened}", f"- max_files_open={most}"]
    lines.append("</file_limits>")
    for directory in directories:
        lines += _directory(directory, chars)
    return "\n".join([*lines, "</directories>"])


def _directory(directory: Directory, chars: int) -> list[str]:
    folder = directory.folder
    lines = [f'<directory name="{folder.name}">']
    if folder.description:
        lines.append(f"<description>{folder.description}</description>")
    if folder.instructions:
        lines.append(f"<instructions>{folder.instructions}</instructions>")
    for view in directory.files:
        lines += _file(view, chars)
    if directory.hidden:
        lines.append(f"({directory.hidden} more files; find them with grep_files or semantic_search_files)")
    return [*lines, "</directory>"]


def _file(view: FileView, chars: int) -> list[str]:
    shown = view.visible or ""
    status = "open" if view.is_open else "closed"
    facts = ["- read_only=true", f"- chars_current={len(shown)}", f"- chars_limit={chars}"]
    value = ["<value>", shown, "</value>"] if view.is_open else []
    return [f'<file status="{status}" name="{view.name}">', "<metadata>", *facts, "</metadata>", *value, "</file>"]
