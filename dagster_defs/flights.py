"""The main job: departures by origin, carrier and hour, from Kafka to a Delta table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import unistream as us

FLIGHT = pa.schema(  # of the fields of a message that are used here
    [
        pa.field("scheduled", pa.timestamp("ms"), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dep_delay", pa.int64()),
    ]
)


@dataclass(frozen=True)
class FlightsConfig:
    """Where the job reads and writes."""

    bootstrap: str
    airlines: str
    lake: str
    topic: str = "flights"


def flights(env: us.Environment, config: FlightsConfig) -> None:
    """Builds the pipeline; nothing runs yet."""
    departures = env.from_source(
        us.KafkaSource(
            bootstrap_servers=config.bootstrap,
            topic=config.topic,
            schema=FLIGHT,
            properties={"group.id": "unistream-flights"},  # positions are reported under it, for monitoring
        ),
        us.WatermarkStrategy.for_bounded_out_of_orderness("30 min").with_timestamp_column("scheduled"),
        name="flights",
    ).uid("flights")
    airlines = env.from_source(
        us.FileSource(config.airlines, format="csv"), us.WatermarkStrategy.no_watermarks(), name="airlines"
    ).uid("airlines")

    flown = departures.side_output("cancelled", pc.field("dep_delay").is_null()).uid("flown")
    hourly = us.TumblingEventTimeWindows.of("1 h")
    flown.join(airlines, on="carrier", how="left").uid("airline").key_by("origin", "carrier", "name").window(
        hourly
    ).aggregate(flights=us.count(), delay_mean=us.mean("dep_delay"), delay_max=us.max("dep_delay")).uid(
        "hourly"
    ).sink_to(us.DeltaSink(f"{config.lake}/flights_hourly", partition_by=["origin"])).uid("lake")

    daily = us.TumblingEventTimeWindows.of("1 d")
    flown.get_side_output("cancelled").key_by("origin").window(daily).aggregate(flights=us.count()).uid(
        "daily"
    ).sink_to(us.DeltaSink(f"{config.lake}/flights_cancelled", partition_by=["origin"])).uid("lake-cancelled")
