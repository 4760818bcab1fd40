"""How far event time is at each vertex when a bootstrap ends, and what has ended for good."""

from __future__ import annotations

import pytest

from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, OperatorUid, VertexId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.core.graph import (
    PipelineSource,
    bootstrap_watermarks,
    check,
    check_bootstrap,
    drained_vertices,
    last_watermarks,
    why_no_stages,
)
from unistream.model.graph import (
    Bootstrap,
    JobEdge,
    JobGraph,
    JobType,
    JobVertex,
    OperatorInfo,
    Ship,
    SourceInfo,
)

BOUNDED = SourceInfo(connector="file", options={}, bounded=True, pull=True)
ENDLESS = SourceInfo(connector="kafka", options={}, bounded=False, pull=False)


def hybrid(fence: int | None = None, column: str = "at", times: str = "at") -> SourceInfo:
    return SourceInfo(
        connector="hybrid",
        options={"fence": fence, "fence_column": column},
        bounded=False,
        pull=False,
        timestamp_column=times,
        phases=(BOUNDED, ENDLESS),
    )


def graph(sources: dict[str, SourceInfo], edges: list[str], watermarks: dict[str, int]) -> JobGraph:
    """`edges`: "a>b", and "a>>b" with committables."""
    ends = [(edge.partition(">")[0], edge.rpartition(">")[2], ">>" in edge) for edge in edges]
    names = list(dict.fromkeys([*sources, *(name for pair in ends for name in pair[:2])]))
    return JobGraph(
        name="job",
        vertices=tuple(
            JobVertex(
                id=VertexId(name),
                name=name,
                operators=(OperatorInfo(uid=OperatorUid(name), name=name),),
                parallelism=1,
                max_parallelism=128,
                source=sources.get(name),
                inputs=0 if name in sources else 1,
            )
            for name in names
        ),
        edges=tuple(
            JobEdge(
                id=EdgeId(f"{a}{b}"),
                source=VertexId(a),
                target=VertexId(b),
                ship=Ship.GLOBAL,
                committables=commits,
            )
            for a, b, commits in ends
        ),
        job_type=JobType.BATCH,
        bootstrap=Bootstrap(
            directory="d", watermarks={VertexId(name): value for name, value in watermarks.items()}
        ),
    )


@pytest.mark.parametrize(
    ("sources", "edges", "watermarks", "expected"),
    [
        pytest.param({"h": hybrid()}, ["h>x", "x>y"], {"h": 9}, {"h": 9, "x": 9, "y": 9}, id="a chain"),
        pytest.param(
            {"h": hybrid(), "i": hybrid()},
            ["h>x", "i>x", "i>y"],
            {"h": 9, "i": 20},
            {"h": 9, "i": 20, "x": 9, "y": 20},
            id="two fences: the earlier one where they meet",
        ),
        pytest.param(
            {"h": hybrid(), "b": BOUNDED},
            ["b>n", "h>x", "n>x"],
            {"h": 9},
            {"h": 9, "b": MAX_WATERMARK, "n": MAX_WATERMARK, "x": 9},
            id="bounded sources have ended",
        ),
        pytest.param(
            {"h": hybrid(), "i": hybrid()},
            ["h>x", "i>x"],
            {"h": 9, "i": MIN_WATERMARK},
            {"h": 9, "i": MIN_WATERMARK, "x": MIN_WATERMARK},
            id="one without watermarks holds them back",
        ),
    ],
)
def test_watermarks(
    sources: dict[str, SourceInfo], edges: list[str], watermarks: dict[str, int], expected: dict[str, int]
) -> None:
    job = graph(sources, edges, watermarks)
    check(job)
    check_bootstrap(job)
    assert why_no_stages(job) is None
    assert last_watermarks(job) == expected
    assert drained_vertices(job) == {name for name, value in expected.items() if value == MAX_WATERMARK}


def test_committables_of_what_has_ended_are_refused() -> None:
    job = graph({"h": hybrid(), "b": BOUNDED}, ["h>x", "b>w", "w>>c"], {"h": 9})
    with pytest.raises(ConfigError, match="'w' writes rows of sources that have no live part"):
        check_bootstrap(job)
    check_bootstrap(graph({"h": hybrid(), "b": BOUNDED}, ["h>x", "b>x", "x>>c"], {"h": 9}))


@pytest.mark.parametrize(
    ("source", "has_watermarks", "until", "expected"),
    [
        (hybrid(100), True, None, 99),
        (hybrid(100), True, 100, 99),
        (hybrid(0), True, 0, -1),
        (hybrid(100), False, 100, MIN_WATERMARK),
        (hybrid(None, ""), False, None, MIN_WATERMARK),
        (hybrid(None), True, None, "is not known; fence it by its event times"),
        (hybrid(100, "id"), True, None, "is not known; fence it by its event times"),
        (hybrid(100), True, 99, "until is 99 ms, and the fence of source 'rows' is 100 ms"),
        (hybrid(None, ""), False, 99, "until is 99 ms, and source 'rows' has no fence"),
        (ENDLESS, True, None, "the pipeline has no HybridSource"),
        (BOUNDED, True, None, "the pipeline has no HybridSource"),
    ],
)
def test_the_watermark_behind_the_history(
    source: SourceInfo, has_watermarks: bool, until: int | None, expected: int | str
) -> None:
    one = PipelineSource(node=3, name="rows", info=source, has_watermarks=has_watermarks)
    if isinstance(expected, int):
        assert bootstrap_watermarks([one], until) == {3: expected}
        return
    with pytest.raises(ConfigError, match=expected):
        bootstrap_watermarks([one], until)
