"""The tools that edit one block: what they write, what they answer, and that a failure writes nothing."""

import pytest
from sqlalchemy import Connection

from kelpie.core.blocks import Block
from kelpie.core.errors import ToolError
from kelpie.core.ids import AgentId, BlockId
from kelpie.storage import blocks
from kelpie.tools.port import Outcome
from tests.tools.conftest import ANN, BEN, NOW, Run
