"""What a pipeline becomes: chains, vertices, exchanges, regions, slot sharing groups. Pure.

Decides: which operators chain (`chaining`), which graphs are refused (`graph_check`, `placement_check`), what
is pipelined and what is stored (`exchange_modes`), which subtasks restart together (`regions`), the positions
of which sources a sink records (`recorded_sources`); describes all of it (`explanation`, `json_plan`). May
import: `core.resource`. Start with `translate` (StreamGraph to JobGraph).
"""

from __future__ import annotations

from unistream.core.graph.bootstrap import (
    BOOTSTRAP_CHECKPOINT,
    BootstrapPlan,
    PipelineSource,
    bootstrap_watermarks,
    check_bootstrap,
    drained_vertices,
    history_only,
    history_splits,
    last_watermarks,
)
from unistream.core.graph.components import joined
from unistream.core.graph.exchange_modes import (
    check_restores,
    checkpoint_interval_ms,
    why_interval_is_idle,
    why_no_checkpoints,
)
from unistream.core.graph.explanation import explain, explain_submitted
from unistream.core.graph.graph_check import check, uid_advice
from unistream.core.graph.json_plan import job_plan, plan_json
from unistream.core.graph.max_parallelism import adapt_max_parallelism
from unistream.core.graph.placement_check import check_measures, check_profiles, endless_vertices
from unistream.core.graph.plan import ExecutionPlan
from unistream.core.graph.regions import (
    Region,
    RegionInput,
    Regions,
    build_regions,
    logical_regions,
    singletons,
)
from unistream.core.graph.slot_sharing import check_group_name
from unistream.core.graph.stages import (
    NATIVE_ENGINE,
    Relay,
    Stage,
    StagePlan,
    choose_engine,
    offloaded_vertices,
    why_no_stages,
)
from unistream.core.graph.topology import ConsumedGroup, Link, Pattern, Topology
from unistream.core.graph.translate import Resolved, resolve, translate_resolved, uid_of
