"""The placement of a worker's Spark job: its cores, and hosts to avoid.

Cores go through stage-level scheduling: a `TaskResourceProfile` needs no dynamic allocation, the executors
that are there are used. Hosts can only be preferred: Spark waits `spark.locality.wait` for a free core there
before it takes another one, on which the worker ends at once. Neither exists in local mode.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.resource import ResourceProfile, ResourceProfileBuilder, TaskResourceRequests
from pyspark.serializers import NoOpSerializer

from unistream.host.spark_status import live_executors


class Placement:
    """Makes the data sets of workers' jobs. Thread-safe."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._profiles: dict[int, ResourceProfile] = {}
        self._lock = threading.Lock()

    def order(self, text: bytes, *, cores: int | None, avoid: Iterable[str]) -> RDD[bytes]:
        """One partition with `text`.

        Args:
            text: The input of the task.
            cores: The executor's cores that the task occupies; None: `spark.task.cpus`.
            avoid: Executor hosts to avoid if there are others.
        """
        avoided = frozenset(avoid)
        hosts = sorted(self.hosts() - avoided) if avoided else []
        orders = self._at(text, hosts) if hosts else self._context.parallelize([text], 1)
        return orders if cores is None else orders.withResources(self._profile(cores))

    def hosts(self) -> frozenset[str]:
        """The hosts of Spark's current executors."""
        return frozenset(executor.host for executor in live_executors(self._context))

    @property
    def _jvm_context(self) -> Any:
        return self._context._jsc.sc()

    def _profile(self, cores: int) -> ResourceProfile:
        """Spark keeps each profile for ever, so there is one for each number of cores."""
        with self._lock:
            if cores not in self._profiles:
                builder = ResourceProfileBuilder()
                self._profiles[cores] = builder.require(TaskResourceRequests().cpus(cores)).build
            return self._profiles[cores]

    def _at(self, text: bytes, hosts: Iterable[str]) -> RDD[bytes]:
        """Python's `parallelize` knows no preferred locations; the JVM's `makeRDD` does."""
        jvm: Any = self._context._jvm
        convert = jvm.scala.jdk.javaapi.CollectionConverters
        preferred, orders = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
        for host in hosts:
            preferred.add(host)
        orders.add(jvm.scala.Tuple2(bytearray(text), convert.asScala(preferred).toSeq()))
        kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        made = self._jvm_context.makeRDD(convert.asScala(orders).toSeq(), kind)
        return RDD(made.toJavaRDD(), self._context, NoOpSerializer())
