"""How slots are divided over slot sharing groups, and which slice then gets which lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.cluster import grouped, job_graph, pipelines
from unistream.core.job import fit
from unistream.core.job.scaling import slots_needed
from unistream.core.resource import Slice, SlotKind, Unit, divide, without_slot
from unistream.core.resource.slot_division import dealt
from unistream.model.graph import JobGraph

NAMES = "abcde"
LIMITS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 6), min_size=1)


def alike(count: int, groups: str = NAMES) -> dict[SlotKind, int]:
    """Slots that are big enough for all groups."""
    return {SlotKind(groups[0], frozenset(groups)): count}


def slots(**kinds: int) -> dict[SlotKind, int]:
    """`ab=2`: two slots that `a` has, big enough for `a` and `b`."""
    return {SlotKind(groups[0], frozenset(groups)): count for groups, count in kinds.items()}


@st.composite
def supplies(draw: st.DrawFn) -> dict[SlotKind, int]:
    kinds = st.tuples(st.sampled_from(NAMES), st.frozensets(st.sampled_from(NAMES)))
    found = draw(st.lists(st.tuples(kinds, st.integers(1, 5)), max_size=5))
    return {SlotKind(group, others | {group}): count for (group, others), count in found}


def shared(limits: Mapping[str, int], supply: Mapping[SlotKind, int]) -> dict[str, int] | None:
    """The share of each group, where each is a unit of its own."""
    units = [Unit(frozenset({group}), limit) for group, limit in limits.items()]
    widths = divide(units, supply)
    return None if widths is None else dict(zip(limits, widths, strict=True))


def is_possible(shares: Mapping[str, int], supply: Mapping[SlotKind, int]) -> bool:
    """Hall's condition: no groups want more together than there is for any of them."""
    return all(
        sum(shares[group] for group in chosen)
        <= sum(count for kind, count in supply.items() if kind.serves & set(chosen))
        for size in range(1, len(shares) + 1)
        for chosen in combinations(shares, size)
    )


class TestDivide:
    @pytest.mark.parametrize(
        ("limits", "count", "shares"),
        [
            pytest.param({"a": 3, "b": 3}, 3, {"a": 2, "b": 1}, id="two groups of 3 on 3 slots"),
            pytest.param({"a": 2, "b": 2}, 2, {"a": 1, "b": 1}, id="two groups of 2 on 2 slots"),
            pytest.param({"a": 4, "b": 4, "c": 4}, 4, {"a": 2, "b": 1, "c": 1}, id="three groups of 4 on 4"),
            pytest.param({"a": 3, "b": 3}, 9, {"a": 3, "b": 3}, id="never above the maximum"),
            pytest.param({"a": 2, "b": 9}, 8, {"a": 2, "b": 6}, id="what one cannot use the other gets"),
            pytest.param({"a": 2, "b": 9}, 3, {"a": 1, "b": 2}, id="one too few for all: to the widest"),
            pytest.param({"a": 2, "b": 2}, 1, None, id="fewer slots than groups"),
            pytest.param({"a": 2}, 0, None, id="no slot"),
        ],
    )
    def test_where_any_slot_will_do(
        self, limits: dict[str, int], count: int, shares: dict[str, int] | None
    ) -> None:
        assert shared(limits, alike(count)) == shares

    @pytest.mark.parametrize(
        ("supply", "shares"),
        [
            pytest.param(slots(a=2, b=2), {"a": 2, "b": 2}, id="each its own"),
            pytest.param(slots(a=4), None, id="too small for the other one"),
            pytest.param(slots(ab=3), {"a": 2, "b": 1}, id="big enough for both"),
            pytest.param(slots(ab=3, b=1), {"a": 2, "b": 2}, id="the small one goes to who can have it"),
            pytest.param(slots(ab=1, a=3), {"a": 3, "b": 1}, id="the only one that b can have is for b"),
        ],
    )
    def test_where_some_are_too_small(
        self, supply: dict[SlotKind, int], shares: dict[str, int] | None
    ) -> None:
        assert shared({"a": 3, "b": 3}, supply) == shares

    def test_slots_are_passed_on_over_several_hands(self) -> None:
        """`c` gets the one that `b` had, which gets the one that `a` had, which takes the other one."""
        assert shared({"a": 1, "b": 1, "c": 1}, slots(a=1, ab=1, bc=1)) == {"a": 1, "b": 1, "c": 1}
        assert shared({"a": 1, "b": 1, "c": 1}, slots(bc=1, ab=1, a=1)) == {"a": 1, "b": 1, "c": 1}

    @pytest.mark.parametrize(
        ("supply", "groups"),
        [
            pytest.param(slots(ab=1), ["b"], id="one too few"),
            pytest.param(slots(a=5), ["b"], id="none that is big enough"),
            pytest.param(slots(ab=2), [], id="enough"),
            pytest.param({}, ["a", "b"], id="none at all"),
        ],
    )
    def test_who_goes_without(self, supply: dict[SlotKind, int], groups: list[str]) -> None:
        assert without_slot(["a", "b"], supply) == groups

    @pytest.mark.parametrize(
        ("count", "widths"),
        [
            pytest.param(3, [1, 1], id="one each"),
            pytest.param(4, [1, 2], id="one more is of no use to the pair"),
            pytest.param(5, [2, 1], id="the pair comes first"),
            pytest.param(6, [2, 2], id="two each"),
            pytest.param(7, [2, 3], id="again of no use to the pair"),
            pytest.param(8, [3, 2], id="the pair to the end"),
        ],
    )
    def test_units_of_several_groups(self, count: int, widths: list[int]) -> None:
        assert divide([Unit(frozenset("ab"), 3), Unit(frozenset("c"), 3)], alike(count)) == widths

    def test_a_unit_becomes_wider_for_less_when_another_one_has_brought_its_group_the_slots(self) -> None:
        first, second = Unit(frozenset("ac"), 2), Unit(frozenset("bc"), 2)
        assert divide([first, second], alike(5)) == [2, 1]
        assert divide([first, second], alike(6)) == [2, 2], "c has its second one already"
        assert divide([first, Unit(frozenset("c"), 2)], alike(4)) == [2, 2]

    @given(limits=LIMITS, count=st.integers(0, 30))
    def test_slots_that_are_alike(self, limits: dict[str, int], count: int) -> None:
        shares = shared(limits, alike(count))
        assert (shares is None) == (count < len(limits)), "at least one for each group"
        if shares is not None:
            assert all(1 <= share <= limits[group] for group, share in shares.items())
            assert sum(shares.values()) == min(count, sum(limits.values())), "none idle that could be used"
            short = [share for group, share in shares.items() if share < limits[group]]
            assert not short or max(shares.values()) <= min(short) + 1, "as evenly as possible"

    @given(limits=LIMITS, supply=supplies())
    def test_slots_of_any_kinds(self, limits: dict[str, int], supply: dict[SlotKind, int]) -> None:
        shares = shared(limits, supply)
        assert shares == shared(limits, dict(reversed(supply.items())))
        assert (shares is None) == (not is_possible(dict.fromkeys(limits, 1), supply))
        assert (shares is None) == bool(without_slot(limits, supply))
        if shares is None:
            return
        assert is_possible(shares, supply)
        for group, share in shares.items():
            assert 1 <= share <= limits[group]
            more = {**shares, group: share + 1}
            assert share == limits[group] or not is_possible(more, supply), "a slot lies idle"

    @given(limits=LIMITS, supply=supplies())
    def test_no_group_has_two_more_than_one_that_could_have_one_of_them(
        self, limits: dict[str, int], supply: dict[SlotKind, int]
    ) -> None:
        shares = shared(limits, supply) or {}
        for rich, poor in ((r, p) for r in shares for p in shares if shares[r] > shares[p] + 1):
            fairer = {**shares, rich: shares[rich] - 1, poor: shares[poor] + 1}
            assert shares[poor] == limits[poor] or not is_possible(fairer, supply)

    @given(limits=LIMITS, supply=supplies(), more=supplies())
    def test_with_more_slots_no_group_has_fewer(
        self, limits: dict[str, int], supply: dict[SlotKind, int], more: dict[SlotKind, int]
    ) -> None:
        before, after = shared(limits, supply), shared(limits, Counter(supply) + Counter(more))
        if before is not None:
            assert after is not None
            assert all(after[group] >= share for group, share in before.items())

    @given(
        units=st.lists(
            st.builds(Unit, st.frozensets(st.sampled_from(NAMES), min_size=1), st.integers(1, 5)),
            min_size=1,
            max_size=6,
        ),
        supply=supplies(),
    )
    def test_any_units(self, units: list[Unit], supply: dict[SlotKind, int]) -> None:
        widths = divide(units, supply)
        assert (widths is None) == (not is_possible(needed(units, [1] * len(units)), supply))
        if widths is None:
            return
        assert all(1 <= width <= unit.limit for unit, width in zip(units, widths, strict=True))
        assert is_possible(needed(units, widths), supply)
        for place, unit in enumerate(units):
            wider = [width + (place == other) for other, width in enumerate(widths)]
            assert wider[place] > unit.limit or not is_possible(needed(units, wider), supply), (
                "could be wider"
            )


def needed(units: Sequence[Unit], widths: Sequence[int]) -> dict[str, int]:
    """Slots of each group."""
    found: Counter[str] = Counter()
    for unit, width in zip(units, widths, strict=True):
        for group in unit.groups:
            found[group] = max(found[group], width)
    return found


def widths(graph: JobGraph | None) -> list[int] | None:
    return None if graph is None else [vertex.parallelism for vertex in graph.vertices]


class TestFit:
    """The whole job: source, count (hash), sink (global, parallelism 1); or two pipelines."""

    @pytest.mark.parametrize(
        ("count", "expected"),
        [(1, None), (2, [1, 1, 1]), (3, [2, 1, 1]), (4, [2, 2, 1]), (5, [3, 2, 1]), (9, [3, 3, 1])],
    )
    def test_a_vertex_is_as_wide_as_the_share_of_its_group(
        self, count: int, expected: list[int] | None
    ) -> None:
        graph = grouped(job_graph(parallelism=3), count="b", sink="b")
        assert widths(fit(graph, {SlotKind("b", frozenset({"default", "b"})): count})) == expected

    @pytest.mark.parametrize(
        ("count", "expected"), [(2, None), (3, (1, 1)), (4, (1, 2)), (5, (2, 1)), (6, (2, 2))]
    )
    def test_vertices_that_forward_edges_join(self, count: int, expected: tuple[int, int] | None) -> None:
        """The first pipeline needs two slots, of two groups, to be wider; the second one needs one."""
        graph = grouped(pipelines(2), source0="a", map0="b", sink0="b", source1="c", map1="c", sink1="c")
        fitted = fit(graph, alike(count, "abc"))
        found = None if fitted is None else {v.name[-1]: v.parallelism for v in fitted.vertices}
        assert found == (None if expected is None else dict(zip("01", expected, strict=True)))

    @given(groups=st.lists(st.sampled_from("abc"), min_size=6, max_size=6), count=st.integers(1, 14))
    def test_any_groups(self, groups: list[str], count: int) -> None:
        plain = pipelines(2)
        graph = grouped(plain, **{v.name: group for v, group in zip(plain.vertices, groups, strict=True)})
        wanted = slots_needed(graph)
        fitted = fit(graph, alike(count, "abc"))
        assert (fitted is None) == (count < len(wanted))
        if fitted is not None:
            used = slots_needed(fitted)
            assert sum(used.values()) <= count
            assert all(1 <= used[group] <= wanted[group] for group in wanted)


def kinds_of(leases: Mapping[Slice, str]) -> dict[Slice, SlotKind]:
    return {piece: SlotKind(piece[0], frozenset(serves) | {piece[0]}) for piece, serves in leases.items()}


class TestDealt:
    @pytest.mark.parametrize(
        ("leases", "shares", "places"),
        [
            pytest.param(
                {("a", 0): "ab", ("b", 0): "ab"},
                {"a": 1, "b": 1},
                {("a", 0): ("a", 0), ("b", 0): ("b", 0)},
                id="what is right stays",
            ),
            pytest.param(
                {("a", 1): "ab", ("a", 2): "ab"},
                {"a": 2},
                {("a", 0): ("a", 2), ("a", 1): ("a", 1)},
                id="gaps are filled from behind",
            ),
            pytest.param(
                {("a", 0): "ab", ("a", 1): "ab"},
                {"a": 1, "b": 1},
                {("a", 0): ("a", 0), ("b", 0): ("a", 1)},
                id="to a group that has none",
            ),
            pytest.param(
                {("a", 0): "a", ("a", 1): "ab", ("a", 2): "a"},
                {"a": 2, "b": 1},
                {("a", 0): ("a", 0), ("a", 1): ("a", 2), ("b", 0): ("a", 1)},
                id="one that is big enough",
            ),
            pytest.param(
                {("a", 0): "a", ("a", 3): "a"},
                {"a": 1},
                {("a", 0): ("a", 0), ("a", 3): ("a", 3)},
                id="what is not needed stays behind",
            ),
            pytest.param(
                {("a", 0): "ab", ("b", 0): "ab", ("b", 1): "b"},
                {"a": 2, "b": 1},
                {("a", 0): ("a", 0), ("a", 1): ("b", 0), ("b", 0): ("b", 1)},
                id="a small one makes room for a big one",
            ),
        ],
    )
    def test_places(
        self, leases: dict[Slice, str], shares: dict[str, int], places: dict[Slice, Slice]
    ) -> None:
        assert dealt(kinds_of(leases), shares) == places

    @given(
        leases=st.dictionaries(
            st.tuples(st.sampled_from("abc"), st.integers(0, 5)), st.sampled_from(("", "ab", "abc", "c"))
        ),
        limits=st.dictionaries(st.sampled_from("abc"), st.integers(1, 5)),
    )
    def test_every_lease_once_and_only_where_it_is_big_enough(
        self, leases: dict[Slice, str], limits: dict[str, int]
    ) -> None:
        kinds = kinds_of(leases)
        shares = shared(limits, Counter(kinds.values())) or {}
        places = dealt(kinds, shares)
        assert sorted(places.values()) == sorted(kinds)
        assert all(target[0] in kinds[source].serves for target, source in places.items())
        assert {(group, index) for group, share in shares.items() for index in range(share)} <= set(places)
        again = dealt({target: SlotKind(target[0], kinds[s].serves) for target, s in places.items()}, shares)
        assert all(target == source for target, source in again.items()), "nothing moves without need"
