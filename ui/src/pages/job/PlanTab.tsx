import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";

import { explainQuery } from "../../api/clusterQueries";
import { Answered } from "../../parts/Answered";
import "./log.css";

/** What the job became, in words: which operators share a task, what they read, and what runs. */
export function PlanTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const query = useQuery(explainQuery(job));
  return (
    <Answered query={query}>
      {({ text }) =>
        text === "" ? (
          <p className="empty">Only how this job has ended is known.</p>
        ) : (
          <>
            <p className="quiet">
              As <code>unistream explain</code> says it of the pipeline, at the parallelism of now.
            </p>
            {text.split("\n\n").map((part) => (
              <Part key={part} text={part} />
            ))}
          </>
        )
      }
    </Answered>
  );
}

function Part({ text }: { text: string }) {
  const [first = "", ...rest] = text.split("\n");
  return (
    <section className="card">
      <h2>
        <bdi>{first}</bdi>
      </h2>
      <pre
        className="plan-text"
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls can be reached by keyboard
        tabIndex={0}
      >
        {rest.join("\n")}
      </pre>
    </section>
  );
}
