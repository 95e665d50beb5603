"""Goal: no version of a feature is offered that is refused when somebody asks for it.

Method: each level that ApiVersions names is asked for, without effect; kraft.version, which is
chosen when a cluster is formatted, is the exception. Seen to fail: with the versions that are only
read among those that are offered.
"""

from __future__ import annotations

from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.api_versions import ApiVersionsRequest
from holdfast.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE_DOWNGRADE = 1, 2


def test_what_is_offered_is_not_refused() -> None:
    world = World(3)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=1)
        await cluster.start()
        client = cluster.client()
        answer = await client.ask(
            ApiVersionsRequest(client_software_name="test", client_software_version="1")
        )
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        offered = {
            (each.name, level)
            for each in answer.supported_features
            for level in range(each.min_version, each.max_version + 1)
            if each.name != "kraft.version"
        }
        assert len(offered) >= 2
        for name, level in sorted(offered):
            kind = UPGRADE if level >= levels.get(name, 0) else SAFE_DOWNGRADE
            asked = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            response = await client.ask(
                UpdateFeaturesRequest(feature_updates=[asked], validate_only=True)
            )
            assert response.error_code == ErrorCode.NONE, (name, level, response.error_message)
        client.close()

    world.run(main)
