import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";

import { jobQuery } from "../../api/queries";
import type { JobInfo } from "../../api/schema";
import { bytes, count, percent } from "../../format/numbers";
import { type Stage, batchOf, pageOf, partOf, toneOfStage } from "../../model/batch";
import { Answered } from "../../parts/Answered";
import { Badge } from "../../parts/Badge";
import { Scrolls } from "../../parts/Scrolls";
import "./batch.css";

/** The stages of a bounded job and how far they are. */
export function BatchTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  return <Answered query={useQuery(jobQuery(job))}>{(info) => <Batch info={info} />}</Answered>;
}

function Batch({ info }: { info: JobInfo }) {
  const found = batchOf(info);
  if (found.stages.length === 0) {
    return (
      <p className="empty">
        {info.ended_ms === null
          ? "It has not begun: its stages stand here as soon as tasks are planned."
          : "How its stages went is not known any more."}
      </p>
    );
  }
  return (
    <>
      <p>
        {found.done} of {found.stages.length} stages are done, {count(found.finished)} of {count(found.tasks)}{" "}
        tasks ({percent(partOf(found))}).
      </p>
      <Engine info={info} />
      <Scrolls label="Stages">
        <table className="names">
          <thead>
            <tr>
              <th scope="col">Stage</th>
              <th scope="col">State</th>
              <th scope="col">Tasks</th>
              <th scope="col" className="number">
                Running
              </th>
              <th scope="col" className="number">
                Failed attempts
              </th>
              <th scope="col" className="number">
                Rows in
              </th>
              <th scope="col" className="number">
                Rows out
              </th>
              <th scope="col" className="number">
                Shuffled
              </th>
            </tr>
          </thead>
          <tbody>
            {found.stages.map((stage, place) => (
              <Row key={place} stage={stage} />
            ))}
          </tbody>
        </table>
      </Scrolls>
      <p className="quiet">
        {info.engine === "spark"
          ? "Rows are of the tasks that have finished. A task that has failed is repeated by Spark, and only the output of one attempt counts."
          : "Rows are as the workers have reported them last. A stage of this runtime is a vertex; what it stores between two of them is not counted."}{" "}
        Output becomes visible once, when all stages are done.
      </p>
    </>
  );
}

function Engine({ info }: { info: JobInfo }) {
  if (info.engine !== "spark") return <p className="quiet">It runs on the workers of this cluster.</p>;
  const page = pageOf(info.engine_page);
  if (page === null) {
    return (
      <p className="quiet">
        It runs on Spark, whose own UI is off here: <code>-D spark.ui.enabled=true</code> where the cluster
        starts turns it on.
      </p>
    );
  }
  return (
    <p className="quiet">
      It runs on Spark:{" "}
      <a href={page} rel="noreferrer" target="_blank">
        Spark&apos;s own UI
      </a>{" "}
      shows the same stages, by the names of their operators, as long as that Spark runs.
    </p>
  );
}

function Row({ stage }: { stage: Stage }) {
  const done = `${count(stage.finished)} of ${count(stage.tasks)}`;
  return (
    <tr>
      <th scope="row">
        <bdi>{stage.name}</bdi>
      </th>
      <td>
        <Badge tone={toneOfStage(stage.state)}>{stage.state}</Badge>
      </td>
      <td className="stage-tasks">
        <progress max={stage.tasks} value={stage.finished} aria-label={`Finished tasks: ${done}`} />
        <span>{done}</span>
      </td>
      <td className="number">{count(stage.running)}</td>
      <td className="number">{count(stage.failed)}</td>
      <td className="number">{count(stage.rowsIn)}</td>
      <td className="number">{count(stage.rowsOut)}</td>
      <td className="number">{bytes(stage.shuffleBytes)}</td>
    </tr>
  );
}
