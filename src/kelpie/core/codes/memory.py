"""Codes of memory, embeddings and search."""

from kelpie.core.codes.code import Code

CODES = (
    Code(
        "embedding_failed",
        "Texts could not be embedded. Search finds them by words until they are. Logged once per cause.",
        "Look at `why`; run `kelpie doctor`.",
    ),
    Code(
        "embedding_graph_damaged",
        "The cached graph of the built-in embedding model is damaged and is built again.",
        "If it comes back, check the disk.",
    ),
    Code(
        "embedding_model_changed",
        "All vectors of a scope were computed with its new embedding model, which search uses from now on.",
    ),
    Code(
        "fact_extraction_deferred",
        "The model call that extracts facts failed. The server tries again in `again_s` seconds.",
        "Check the agent's model.",
    ),
    Code(
        "fact_extraction_failed",
        "Fact extraction could not read or write its data. The server tries again.",
        "Check the disk.",
    ),
    Code(
        "fact_extraction_skipped",
        "No usable facts could be extracted from a part of a conversation. That part is skipped for good.",
        "If it comes back, choose another model for facts.",
    ),
    Code(
        "file_not_processed",
        "An uploaded file could not be processed; its status is `error`, with the reason in `why`.",
        "Repair or split the file, and upload it again.",
    ),
    Code(
        "file_processed",
        "A file is processed: agents that have its folder can read and search it.",
    ),
    Code(
        "file_processing_interrupted",
        "The processing of files was interrupted. The server tries again; what was done is not lost.",
        "Look at `error`; check the disk and the memory.",
    ),
    Code(
        "memory_change_failed",
        (
            "A large restore or reset could not be completed after it had begun: another organization took an id of "
            "the checkpoint meanwhile."
        ),
        "Look at `error` and restore the checkpoint again.",
    ),
    Code(
        "memory_change_interrupted",
        (
            "The database failed during a large restore or reset. The server tries again; clients of the "
            "organization wait meanwhile."
        ),
        "Check the disk.",
    ),
    Code(
        "memory_change_kept",
        "The stored document of a finished or refused restore could not be deleted. The server tries again.",
        "Check the disk.",
    ),
    Code(
        "memory_change_resumed",
        "The server completes a large restore or reset that a crash or a failing disk interrupted.",
        "Nothing.",
    ),
    Code(
        "text_index_damaged",
        "A part of the text index does not match its checksum. Search skips it.",
        "Restore the database from a backup; check the disk.",
    ),
    Code(
        "text_index_merge_skipped",
        "A damaged segment of the text index was not merged.",
        "Restore the database from a backup; check the disk.",
    ),
    Code(
        "vector_damaged",
        "A stored vector does not match its checksum. Search skips it.",
        "Restore the database from a backup; check the disk.",
    ),
    Code(
        "vector_search_failed",
        "Vector search failed. The answer has full-text results only.",
        "Look at `error`; often the disk.",
    ),
    Code(
        "vector_update_failed",
        "Missing vectors could not be computed. The server tries again.",
        "Look at `error`; run `kelpie doctor`.",
    ),
)
