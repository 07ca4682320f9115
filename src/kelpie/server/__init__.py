"""The HTTP server: Letta's API, Kelpie's own resources, and the middleware around them."""

import warnings

from pydantic import BaseModel
from pydantic.warnings import UnsupportedFieldAttributeWarning

# A model makes its validator when it is first used, not when its class is made: a server uses few of its models.
BaseModel.model_config["defer_build"] = True

# FastAPI ignores this warning where it declares a body; now the validator of a body is made after that.
warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)
