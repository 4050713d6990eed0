"""Request filters for any handler set, e.g. `broker` and `gateway`. Their page is docs/filters.md."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_request_filters() -> Iterator[Provider]:
    """Yield filters that limit clients, give tenants their own topics, and read records."""
    yield Provider(
        "deny_apis",
        "klamm_filters.deny_apis:DenyApis",
        settings="klamm_filters.filter_settings:DenyApisSettings",
        summary="refuses APIs by name",
    )
    yield Provider(
        "client_limits",
        "klamm_filters.client_limits:ClientLimits",
        settings="klamm_filters.filter_settings:ClientLimitsSettings",
        summary="refuses clients by software, version, client id and versions of requests",
    )
    yield Provider(
        "rewrite_client_id",
        "klamm_filters.rewrite_client_id:RewriteClientId",
        settings="klamm_filters.filter_settings:RewriteClientIdSettings",
        summary="replaces the client id of requests, e.g. by one that contains the principal",
    )
    yield Provider(
        "topic_prefix",
        "klamm_filters.tenancy.filter:TopicPrefix",
        settings="klamm_filters.tenancy.tenancy_settings:TopicPrefixSettings",
        summary="gives tenants topics, groups and transactional ids of their own",
    )
    yield Provider(
        "record_validation",
        "klamm_filters.records.validation:RecordValidation",
        settings="klamm_filters.records.validation_settings:RecordValidationSettings",
        summary="refuses records that are not JSON, or do not match a JSON Schema",
    )
    yield Provider(
        "record_encryption",
        "klamm_filters.records.encryption:RecordEncryption",
        settings="klamm_filters.records.encryption_settings:RecordEncryptionSettings",
        summary="encrypts values before they are written, and decrypts fetched values",
    )
