"""Assets that are derived from a pipeline: keys, what is upstream, columns and their lineage."""

import dagster as dg
import pyarrow as pa
import pytest

import unistream as us
from tests.names import BY_CASE, ODD
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.dagster import (
    SinkTranslatorData,
    SourceTranslatorData,
    UnistreamResource,
    UnistreamTranslator,
    build_source_asset_specs,
    build_unistream_asset_specs,
    unistream_assets,
)
from unistream.dagster.run.translator import NAMED_MAX
from unistream.model.lineage import LineageDataset, SourceLineage

ORDER = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string()), ("cents", pa.int64())])
NO_TIME = us.WatermarkStrategy.no_watermarks()
LAKE = "/not/there/lake"


def topic(name: str = "orders") -> us.KafkaSource:
    return us.KafkaSource(
        bootstrap_servers="broker:9092", topic=name, schema=ORDER, on_bad_record="dead-letter"
    )


def orders(env: us.Environment) -> None:
    read = env.from_source(topic(), NO_TIME, "orders").uid("orders")
    kind = pa.schema([("kind", pa.string()), ("title", pa.string())])
    kinds = env.from_source(
        us.FileSource("/not/there/kinds.csv", format="csv", schema=kind), NO_TIME, "kinds"
    )
    known = read.join(kinds.uid("kinds"), on="kind").with_columns(euros=us.col("cents") // 100)
    known.sink_to(us.DeltaSink(f"{LAKE}/orders")).uid("lake")
    read.map(lambda row: row).sink_to(us.FileSink(f"{LAKE}/raw.v1", format="json")).uid("raw")
    read.dead_letters_to(us.FileSink(f"{LAKE}/bad orders"))
    read.print()


def text(keys: object) -> list[str]:
    return sorted(key.to_user_string() for key in keys)  # type: ignore[attr-defined]


def test_each_sink_with_a_uid_is_an_asset() -> None:
    lake, raw, bad = build_unistream_asset_specs(orders)
    assert text([lake.key, raw.key, bad.key]) == ["lake/bad_orders", "lake/orders", "lake/raw.v1"]
    assert [spec.metadata["unistream/sink_uid"] for spec in (lake, raw, bad)] == [
        *("lake", "raw", "orders-dead-letters"),
    ]
    assert [spec.kinds for spec in (lake, raw, bad)] == [
        {"unistream", kind} for kind in ("deltalake", "json", "parquet")
    ]
    assert text(dep.asset_key for dep in lake.deps) == ["kafka/orders", "there/kinds"]
    assert text(dep.asset_key for dep in bad.deps) == ["kafka/orders"]
    assert lake.metadata["dagster/uri"] == f"file://{LAKE}/orders"
    assert [spec.description for spec in (lake, raw, bad)] == [
        "orders, kinds → inner join → with_columns",
        "orders → map <lambda>",
        "What 'orders' could not decode or process: each row or record with the reason.",
    ]


def test_a_description_names_a_side_output_and_not_too_many_operators() -> None:
    def many(env: us.Environment) -> None:
        rows = env.from_source(topic(), NO_TIME, "orders").uid("orders")
        rows = rows.side_output("odd", us.col("id").is_null()).uid("split").name("split")
        rows.get_side_output("odd").sink_to(us.FileSink(f"{LAKE}/odd")).uid("odd")
        for number in range(NAMED_MAX + 1):
            rows = rows.filter(us.col("id") > number).name(f"f{number}").uid(f"f{number}")
        rows.sink_to(us.FileSink(f"{LAKE}/all")).uid("all")

    odd, everything = build_unistream_asset_specs(many)
    assert odd.description == "Side output 'odd' of 'split': orders → split"
    way = everything.description or ""
    assert way.startswith("orders → split → f0 → f1 → ")
    assert way.endswith(f" → f{NAMED_MAX - 3} → … → f{NAMED_MAX}")


def test_columns_and_where_they_come_from() -> None:
    lake, raw, bad = build_unistream_asset_specs(orders)
    columns = {column.name: column for column in lake.metadata["dagster/column_schema"].columns}
    assert list(columns) == ["id", "kind", "cents", "title", "euros"]
    assert (columns["euros"].type, columns["title"].type) == ("int64", "string")
    lineage = lake.metadata["dagster/column_lineage"].deps_by_column
    found = {
        name: [f"{dep.asset_key.to_user_string()}.{dep.column_name}" for dep in deps]
        for name, deps in lineage.items()
    }
    assert found["euros"] == ["kafka/orders.cents"]
    assert found["title"] == ["there/kinds.title"]
    assert "dagster/column_schema" not in raw.metadata, "a function does not say what it returns"
    assert "dagster/column_lineage" not in bad.metadata


def test_what_pipelines_read_and_none_of_them_writes() -> None:
    def daily(env: us.Environment) -> None:
        read = env.from_source(us.FileSource(f"{LAKE}/orders", schema=ORDER), NO_TIME, "lake").uid("lake")
        read.sink_to(us.DeltaSink(f"{LAKE}/daily")).uid("daily")

    assert text(spec.key for spec in build_source_asset_specs(orders, daily)) == [
        "kafka/orders",
        "there/kinds",
    ]
    [alone] = build_source_asset_specs(daily)
    [of_daily] = build_unistream_asset_specs(daily)
    assert alone.key == build_unistream_asset_specs(orders)[0].key, "the pipelines are linked"
    assert [dep.asset_key for dep in of_daily.deps] == [alone.key]


def test_a_history_that_the_pipeline_writes_itself_is_not_upstream() -> None:
    def again(env: us.Environment) -> None:
        table = us.FileSource(f"{LAKE}/orders", schema=ORDER)
        read = env.from_source(us.HybridSource(table, topic()), NO_TIME, "orders").uid("orders")
        read.sink_to(us.FileSink(f"{LAKE}/orders")).uid("lake")

    [spec] = build_unistream_asset_specs(again)
    assert text(dep.asset_key for dep in spec.deps) == ["kafka/orders"]


class InLayers(UnistreamTranslator):
    def get_asset_spec(self, data: SinkTranslatorData) -> dg.AssetSpec:
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(key=spec.key.with_prefix("silver"), owners=["team:data"])


def test_a_translator_changes_what_it_wants() -> None:
    @unistream_assets(orders, translator=InLayers(), group_name="sales")
    def sales(context: dg.AssetExecutionContext, unistream: UnistreamResource):  # type: ignore[no-untyped-def]
        yield from unistream.run(context, orders)

    assert text(sales.keys) == ["silver/lake/bad_orders", "silver/lake/orders", "silver/lake/raw.v1"]
    assert {spec.group_name for spec in sales.specs} == {"sales"}
    assert {tuple(spec.owners) for spec in sales.specs} == {("team:data",)}
    dg.Definitions.validate_loadable(
        dg.Definitions(
            [sales, *build_source_asset_specs(orders)],
            resources={"unistream": UnistreamResource(target="local")},
        )
    )


class OneKey(UnistreamTranslator):
    def get_asset_spec(self, data: SinkTranslatorData) -> dg.AssetSpec:
        return super().get_asset_spec(data).replace_attributes(key="same")


def without_uid(env: us.Environment) -> None:
    env.from_source(topic(), NO_TIME, "orders").sink_to(us.FileSink(f"{LAKE}/orders"))


def printed(env: us.Environment) -> None:
    env.from_source(topic(), NO_TIME, "orders").print()


def of_one_name(env: us.Environment) -> None:
    read = env.from_source(us.FileSource("/other/lake/orders", schema=ORDER), NO_TIME, "orders").uid("read")
    read.sink_to(us.FileSink(f"{LAKE}/orders")).uid("lake")


@pytest.mark.parametrize(
    ("build", "translator", "reason"),
    [
        pytest.param(orders, OneKey(), "sinks 'lake' and 'raw' have the same asset key same", id="one key"),
        pytest.param(without_uid, None, r"sink 'files' \(file:///.*\) has no uid", id="no uid"),
        pytest.param(printed, None, "no sink of the pipeline has a uid", id="no asset"),
        pytest.param(of_one_name, None, "depends on lake/orders, the key of what the pipeline", id="itself"),
    ],
)
def test_what_cannot_be_assets_is_refused(
    build: object, translator: UnistreamTranslator | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        unistream_assets(build, translator=translator)  # type: ignore[arg-type]


def test_a_pipeline_or_specs_and_not_both() -> None:
    with pytest.raises(ConfigError, match="not both"):
        unistream_assets(orders, specs=build_unistream_asset_specs(orders))
    with pytest.raises(ConfigError, match="a translator needs the pipeline"):
        unistream_assets(specs=build_unistream_asset_specs(orders), translator=InLayers())


# --- any names ------------------------------------------------------------------------------------

FOLDERS = [name for name in ODD.values() if "\0" not in name and len(name) < 256]


def copies(*folders: str, into: str = "/out"):
    """Reads each folder into one of its own."""

    def build(env: us.Environment) -> None:
        for number, folder in enumerate(folders):
            rows = env.from_source(us.FileSource(folder, schema=ORDER), NO_TIME, f"r{number}").uid(
                f"r{number}"
            )
            rows.sink_to(us.FileSink(f"{into}/{number}")).uid(f"s{number}")

    return build


def written_to(*folders: str):
    def build(env: us.Environment) -> None:
        rows = env.from_source(topic(), NO_TIME, "orders").uid("orders")
        for number, folder in enumerate(folders):
            rows.sink_to(us.FileSink(folder)).uid(f"s{number}")

    return build


def step(context: dg.AssetExecutionContext):
    """Of assets that are not materialised."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_table_with_any_name_is_an_asset_that_dagster_takes(folder: str) -> None:
    made = unistream_assets(written_to(f"{LAKE}/{folder}"), name="step")(step)
    dg.Definitions.validate_loadable(dg.Definitions(assets=[made]))
    if not set("*?[") & set(folder):  # a source takes it for a pattern
        [source] = build_source_asset_specs(copies(f"{LAKE}/{folder}"))
        assert [source.key] == list(made.keys), "a pipeline that reads it is downstream"


def test_two_tables_are_two_assets_or_refused() -> None:
    two = unistream_assets(written_to(*(f"{LAKE}/{name}" for name in BY_CASE)), name="step")(step)
    assert text(two.keys) == ["lake/Name", "lake/name"]
    for one, other in [("a b", "a_b"), ("größe", "gr_e"), ("50%", "50_")]:
        pair = [f"{LAKE}/{one}", f"{LAKE}/{other}"]
        for refused in (
            lambda pair=pair: build_unistream_asset_specs(written_to(*pair)),
            lambda pair=pair: build_unistream_asset_specs(copies(*pair)),
            lambda pair=pair: build_source_asset_specs(copies(pair[0]), copies(pair[1], into="/others")),
        ):
            with pytest.raises(ConfigError, match=f"have the same asset key lake/{other}"):
                refused()
    for one, other in [("a-b", "a_b"), ("a.b", "a-b")]:
        with pytest.raises(ConfigError, match="are one name of an output to Dagster, lake__a_b"):
            unistream_assets(written_to(f"{LAKE}/{one}", f"{LAKE}/{other}"), name="step")(step)


def test_a_step_with_a_long_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="its name has 300 of at most 200 characters"):
        unistream_assets(written_to(f"{LAKE}/a"), name="n" * 300)(step)


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        (LineageDataset("iceberg://lake", "shop.orders", "iceberg"), "lake.shop.orders"),
        (LineageDataset("postgres://db:5432", "shop.public.orders"), "shop.public.orders"),
        (LineageDataset("s3://lake", "orders", "delta"), None),
        (LineageDataset("kafka://broker:9092", "orders"), None),
    ],
    ids=str,
)
def test_a_table_of_a_catalogue_has_its_name_there(dataset: LineageDataset, name: str | None) -> None:
    source = SourceLineage(
        uid=OperatorUid("orders"), name="orders", bounded=True, schema=None, datasets=(dataset,)
    )
    spec = UnistreamTranslator().get_source_asset_spec(SourceTranslatorData(dataset=dataset, source=source))
    assert spec.metadata.get("dagster/table_name") == name
    assert spec.metadata["dagster/uri"] == dataset.uri
