"""The main job: departures by origin, carrier and hour, from Kafka to a Delta table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

import unistream as us

FLIGHT = pa.schema(  # of the fields of a message that are used here
    [
        pa.field("scheduled", pa.timestamp("ms"), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dep_delay", pa.int64()),
    ]
)


STRATEGY = us.WatermarkStrategy.for_bounded_out_of_orderness("30 min").with_timestamp_column("scheduled")


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
        STRATEGY,
        name="flights",
    ).uid("flights")

    flown = departures.side_output("cancelled", us.col("dep_delay").is_null()).uid("flown")
    lake = us.DeltaSink(f"{config.lake}/flights_hourly", partition_by=["origin"])
    by_hour(flown, airlines_of(env, config)).sink_to(lake).uid("lake")

    daily = us.TumblingEventTimeWindows.of("1 d")
    flown.get_side_output("cancelled").key_by("origin").window(daily).aggregate(flights=us.count()).uid(
        "daily"
    ).sink_to(us.DeltaSink(f"{config.lake}/flights_cancelled", partition_by=["origin"])).uid("lake-cancelled")


def airlines_of(env: us.Environment, config: FlightsConfig) -> us.DataStream:
    """The names of the carriers."""
    names = us.FileSource(config.airlines, format="csv")
    return env.from_source(names, us.WatermarkStrategy.no_watermarks(), name="airlines").uid("airlines")


def by_hour(flown: us.DataStream, airlines: us.DataStream) -> us.DataStream:
    """Flights and delays by origin, carrier and hour."""
    named = flown.join(airlines, on="carrier", how="left").uid("airline")
    hours = named.key_by("origin", "carrier", "name").window(us.TumblingEventTimeWindows.of("1 h"))
    return hours.aggregate(
        flights=us.count(), delay_mean=us.mean("dep_delay"), delay_max=us.max("dep_delay")
    ).uid("hourly")
