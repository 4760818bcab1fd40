import { useLive } from "../api/queries";
import { localTime } from "../format/times";
import { type Freshness, freshnessOf, otherVersion } from "../model/freshness";
import type { Tone } from "../model/states";
import { OtherMasters, useOtherMasters } from "./OtherMasters";

/** A mark in the bar: whether what stands on the page is as it is in the cluster. */
export function LiveMark() {
  const freshness = useFreshness();
  const [tone, word, why] = marked(freshness);
  return (
    <span className={`live-mark tone-${tone}`} title={why}>
      {word}
    </span>
  );
}

/** The one place that says that data is old, and since when; at the bottom, where it moves nothing. */
export function LiveNotice() {
  const freshness = useFreshness();
  const { serverVersion } = useLive();
  const masters = useOtherMasters();
  const other = otherVersion(pageVersion(), serverVersion);
  return (
    <div className="live-notices">
      {freshness.kind === "stale" && (
        <div className="notice tone-warn" role="alert">
          <strong>Old since {localTime(freshness.sinceMs)}.</strong> {freshness.why} This page goes on by
          itself.
          <OtherMasters masters={masters} />
        </div>
      )}
      {other !== null && (
        <div className="notice tone-busy" role="status">
          {other}{" "}
          <button
            type="button"
            onClick={() => {
              location.reload();
            }}
          >
            Reload
          </button>
        </div>
      )}
    </div>
  );
}

function useFreshness(): Freshness {
  const status = useLive();
  return freshnessOf(status, status.tickedMs);
}

function marked(freshness: Freshness): [Tone, string, string] {
  switch (freshness.kind) {
    case "connecting":
      return ["quiet", "connecting", "The stream of changes is being opened."];
    case "live":
      return ["good", "live", "What changes in the cluster shows here within a second or two."];
    case "polled":
      return [
        "busy",
        "each second",
        "No stream of changes gets through, perhaps because of a proxy that holds it back; the JobManager is asked each second.",
      ];
    case "stale":
      return ["warn", "old", freshness.why];
  }
}

/** What the server that gave this page was; null: the page comes from Vite. */
function pageVersion(): string | null {
  const said = document.querySelector<HTMLMetaElement>('meta[name="unistream-version"]')?.content;
  return said === undefined || said === "VERSION-OF-THIS-SERVER" ? null : said;
}
