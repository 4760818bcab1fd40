"""What the asset decorator accepts and refuses, and what it declares."""

import dagster as dg
import pytest

from unistream.base.errors import ConfigError
from unistream.dagster import UnistreamResource, sink_asset, unistream_assets

ORDERS = sink_asset("orders", sink_uid="lake", kinds={"deltalake"}, metadata={"owner": "me"})


def test_a_sink_asset_names_its_sink_and_keeps_what_was_given() -> None:
    assert ORDERS.metadata == {"owner": "me", "unistream/sink_uid": "lake"}
    assert ORDERS.kinds == {"unistream", "deltalake"}


def test_the_assets_of_one_job_are_one_step_with_a_pool_of_its_own() -> None:
    @unistream_assets(specs=[ORDERS, sink_asset("late", sink_uid="late")])
    def pipeline(context: dg.AssetExecutionContext, unistream: UnistreamResource):
        yield from unistream.run(context, lambda _env: None)

    assert pipeline.op.name == "pipeline"
    assert pipeline.op.pool == "unistream_pipeline"
    assert {key.to_user_string() for key in pipeline.keys} == {"orders", "late"}
    assert pipeline.can_subset is False


@pytest.mark.parametrize(
    ("specs", "options", "text"),
    [
        pytest.param([], {}, "at least one asset spec", id="no assets"),
        pytest.param([dg.AssetSpec("plain")], {}, "asset plain has no sink", id="an asset without a sink"),
        pytest.param(
            [ORDERS], {"retry_policy": dg.RetryPolicy(max_retries=1)}, "no retry_policy", id="a retry policy"
        ),
    ],
)
def test_the_decorator_refuses(specs: list[dg.AssetSpec], options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        unistream_assets(specs=specs, **options)
