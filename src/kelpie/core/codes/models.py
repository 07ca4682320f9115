"""Codes of model providers."""

from kelpie.core.codes.code import Code

CODES = (
    Code(
        "context_window_overflow_in_system_prompt",
        "The instructions, memory and tools alone do not fit into the context window.",
        "Shorten the blocks, detach tools, or raise `context_window_limit`.",
    ),
    Code(
        "embedding_model_list_failed",
        "A provider did not list its embedding models. They are left out of the list.",
        "Check the provider's key and address.",
    ),
    Code(
        "llm_authentication",
        "The provider rejected the key.",
        "Correct the key of the provider.",
    ),
    Code(
        "llm_bad_request",
        "The provider rejected the request. `detail` has its words.",
        "Follow `detail`; often a setting that the model does not have.",
    ),
    Code(
        "llm_connection",
        "The provider cannot be reached.",
        "Check its URL and your network.",
    ),
    Code(
        "llm_context_overflow",
        "The request does not fit into the context window of the model, also after compaction.",
        "Send less, or raise `context_window_limit`.",
    ),
    Code(
        "llm_error",
        "The provider failed.",
        "Send it again, or use another model.",
    ),
    Code(
        "llm_insufficient_credits",
        "The account at the provider has no credit left.",
        "Add credit at the provider, or use another model.",
    ),
    Code(
        "llm_malformed",
        "The answer of the provider cannot be read.",
        "Check that the URL is that of the provider's API.",
    ),
    Code(
        "llm_rate_limit",
        "The provider's own limit is reached, also after retries.",
        "Wait as long as `Retry-After` says, or use another model.",
    ),
    Code(
        "llm_timeout",
        "The provider did not answer in time.",
        "Send it again. See the time limits in [models](models.md).",
    ),
    Code(
        "model_call_retried",
        "A model call failed and is repeated after `pause_s` seconds.",
        "If it comes often, check the provider.",
    ),
    Code(
        "model_fallback",
        "A model failed, and the next model of the fallback chain is asked.",
        "If it comes often, check the provider.",
    ),
    Code(
        "model_list_failed",
        "A provider did not list its models. They are left out of the list.",
        "Follow `hint`; check the provider's key and address.",
    ),
    Code(
        "model_list_stale",
        "A provider did not list its models. The previous list is used.",
        "If it comes often, check the provider.",
    ),
    Code(
        "model_pull_started",
        "A local model that is missing is being pulled.",
    ),
    Code(
        "model_request_reduced",
        "A provider rejected an optional part of a request. The request is repeated without that part.",
    ),
    Code(
        "model_server_found",
        "Kelpie found a model server on a default port of this machine and uses its models.",
        "Set `setting` to keep it beside other providers, or `KELPIE_DISCOVER_MODELS=false`.",
    ),
    Code(
        "provider_failed",
        "A request failed because its model provider refused it, failed or could not be reached.",
        "Follow `hint`; check the provider's key and address.",
    ),
    Code(
        "provider_models_unread",
        "A new provider of an organization did not list its models. It is stored, and asked again when its models are "
        "needed.",
        "Check its key and address with `kelpie providers check`.",
    ),
)
