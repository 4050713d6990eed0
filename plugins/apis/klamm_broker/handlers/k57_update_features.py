"""UpdateFeatures, versions 0 to 2 (KIP-584): changes the finalized levels of features, either all or none.

Follows `ControllerApis.handleUpdateFeatures` and `FeatureControlManager.updateFeatures`.

- An unsupported feature, a level out of its range, a lower level without a downgrade, a downgrade to a higher level, an
  unknown type of upgrade: INVALID_UPDATE_VERSION for the whole request. `allow_downgrade` of version 0 is ignored, as
  in Kafka.
- If the update succeeds, versions 0 and 1 get a result for each feature.
- `metadata.version` and `kraft.version` are never lowered, as in Kafka.

Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from klamm import KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from klamm_broker.features import FeatureUpdate
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices

_LAST_VERSION_WITH_RESULTS = 1
_FAILED = "The update failed for all features since the following feature had an error"


def change_levels(
    broker: BrokerServices, request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    """Change levels. Raises KafkaError. Runs on a request handler's thread."""
    require_cluster(context, AclOperation.ALTER)
    updates = {
        each.feature: FeatureUpdate(each.max_version_level, each.upgrade_type) for each in request.feature_updates
    }
    try:
        broker.features.update(updates, validate_only=request.validate_only)
    except KafkaError as error:
        return UpdateFeaturesResponse(
            error_code=error.error_code,
            error_message=f"{_FAILED}: {error.message}",
        )
    if context.api_version > _LAST_VERSION_WITH_RESULTS:
        return UpdateFeaturesResponse(error_message=None)
    return UpdateFeaturesResponse(
        error_message=None, results=[UpdatableFeatureResult(each, error_message="NONE") for each in updates]
    )
