import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";

import { jobQuery } from "../../api/queries";
import type { ExceptionInfo } from "../../api/schema";
import { userFrames } from "../../model/stack";
import { causeOf } from "../../model/trouble";
import { Answered } from "../../parts/Answered";
import { Time } from "../../parts/Time";

/** What went wrong, the root cause of each restart first. */
export function ExceptionsTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const query = useQuery(jobQuery(job));
  return (
    <Answered query={query}>
      {({ exceptions }) =>
        exceptions.length === 0 ? (
          <p className="empty">Nothing has failed.</p>
        ) : (
          <ol className="stack">
            {exceptions.map((one) => (
              <li key={`${one.at_ms} ${one.attempt ?? ""}`} className="card">
                <Failure failure={one} />
              </li>
            ))}
          </ol>
        )
      }
    </Answered>
  );
}

function Lines({ text }: { text: string }) {
  return (
    <pre
      dir="auto"
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls can be reached by keyboard
      tabIndex={0}
    >
      {text}
    </pre>
  );
}

/** The calls in the user's own files: the last one is where it failed. */
function Frames({ stack }: { stack: string }) {
  const frames = userFrames(stack);
  if (frames.length === 0) return null;
  return (
    <ol className="frames">
      {frames.map(({ file, line, name, code }, index) => (
        <li key={index}>
          <code>
            <bdi>{`${file}:${line}`}</bdi>
          </code>{" "}
          <span className="quiet">
            in <bdi>{name}</bdi>
          </span>
          {code !== "" && (
            <pre>
              <bdi>{code}</bdi>
            </pre>
          )}
        </li>
      ))}
    </ol>
  );
}

function Failure({ failure }: { failure: ExceptionInfo }) {
  const [first = "", ...more] = failure.message.split("\n");
  const isEnd = causeOf(failure) !== failure;
  return (
    <>
      <h2>
        {failure.kind}: <bdi>{first}</bdi>
      </h2>
      <p className="quiet">
        <Time ms={failure.at_ms} />
        {failure.task_name !== null && (
          <>
            {" · "}
            <bdi>{failure.task_name}</bdi>
          </>
        )}
        {failure.task_manager !== null && ` · worker ${failure.task_manager}`}
        {failure.endpoint !== null && ` · ${failure.endpoint}`}
      </p>
      {more.length > 0 && <Lines text={more.join("\n")} />}
      <Frames stack={failure.traceback} />
      {failure.traceback !== "" && (
        <details>
          <summary>Whole stack</summary>
          <Lines text={failure.traceback} />
        </details>
      )}
      {failure.concurrent.length > 0 && (
        <details open={isEnd}>
          <summary>
            {isEnd
              ? "What had failed"
              : `${failure.concurrent.length} more while the job restarted because of it`}
          </summary>
          <ol className="stack">
            {failure.concurrent.map((one) => (
              <li key={`${one.at_ms} ${one.attempt ?? ""}`}>
                <Failure failure={one} />
              </li>
            ))}
          </ol>
        </details>
      )}
    </>
  );
}
