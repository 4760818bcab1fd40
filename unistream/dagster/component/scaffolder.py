"""What ``dg scaffold defs unistream.dagster.UnistreamJobComponent NAME`` writes: a pipeline that runs."""

from __future__ import annotations

from typing import Any, Final

import dagster as dg

PIPELINE: Final = '''"""A pipeline is a function that takes an environment."""

import unistream as us


def build(env: us.Environment, lake: str) -> None:
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=1_000)
    orders = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "orders").uid("orders")
    orders.filter(us.col("id") < 500).uid("first").sink_to(us.DeltaSink(f"{lake}/orders")).uid("lake")
'''


class UnistreamJobScaffolder(dg.Scaffolder[Any]):
    """Writes `pipeline.py` and `defs.yaml`."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Writes both into the folder of the component; what is there under these names is written over."""
        request.target_path.mkdir(parents=True, exist_ok=True)
        (request.target_path / "pipeline.py").write_text(PIPELINE, encoding="utf-8")
        name = request.target_path.name
        attributes = {
            "pipeline": ".pipeline:build",
            "name": name,
            "arguments": {"lake": "{{ env.LAKE }}"},
            "unistream": {"config": {"execution.checkpointing.interval": "10 s"}},
        }
        dg.scaffold_component(request, attributes)
