import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";

import { jobQuery } from "../../api/queries";
import { Answered } from "../../parts/Answered";
import { Copyable } from "../../parts/Copyable";

/** What the job was given, and what it writes. */
export function ConfigurationTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const query = useQuery(jobQuery(job));
  return (
    <Answered query={query}>
      {(info) => (
        <div className="stack">
          <section className="card">
            <h2>Writes</h2>
            <ul>
              {Object.entries(info.writes).map(([uid, uris]) => (
                <li key={uid}>
                  <bdi>{uid}</bdi>: {uris.join(", ")}
                </li>
              ))}
            </ul>
          </section>
          <section className="card">
            <h2>Options of the command line</h2>
            {Object.keys(info.given).length === 0 ? (
              <p className="quiet">None was given, or the job has ended.</p>
            ) : (
              <dl className="options">
                {Object.entries(info.given).map(([name, value]) => (
                  <div key={name}>
                    <dt>
                      <code>{name}</code>
                    </dt>
                    <dd>
                      <code>{value}</code>
                    </dd>
                  </div>
                ))}
              </dl>
            )}
          </section>
          {info.latest_checkpoint !== null && (
            <section className="card">
              <h2>A job can start from</h2>
              <Copyable text={info.latest_checkpoint} />
            </section>
          )}
        </div>
      )}
    </Answered>
  );
}
