import type { UseQueryResult } from "@tanstack/react-query";
import { type ReactNode, useContext, useState } from "react";

import { Refused, Unreachable } from "../api/client";
import { localTime } from "../format/times";
import { Notice } from "./Notice";
import { Gone } from "./gone";

/**
 * What an answer shows, in each of its states: loading, refused, here, and refused now with what was here before.
 * That nobody answers is said once for the whole page (`shell/LiveState`).
 */
export function Answered<T>({
  query,
  known = null,
  children,
}: {
  query: UseQueryResult<T>;
  /** What an earlier question had for an answer, where each has a key of its own. */
  known?: { readonly data: T; readonly atMs: number } | null;
  children: (data: T) => ReactNode;
}) {
  const { error, errorUpdateCount } = query;
  const data = query.data ?? known?.data;
  const dataUpdatedAt = query.data === undefined ? (known?.atMs ?? 0) : query.dataUpdatedAt;
  const [refused, setRefused] = useState(error);
  if (error !== null && error !== refused) setRefused(error);
  const isGone = useContext(Gone);
  if (data === undefined) {
    // While a query without an answer is asked again it forgets why it was refused; the page does not.
    const why = error ?? (errorUpdateCount > 0 ? refused : null);
    if (why === null) return <div className="skeleton" role="status" aria-label="Loading" />;
    if (isGone && isNotFound(why)) {
      return <p className="empty">This part was not looked at while the job was still known.</p>;
    }
    return <Notice tone="bad">{sentence(why)}</Notice>;
  }
  return (
    <>
      {error !== null && !(error instanceof Unreachable) && !(isGone && isNotFound(error)) && (
        <Notice tone="warn">
          {`${sentence(error)} What stands here is from ${localTime(dataUpdatedAt)}; it is asked for again.`}
        </Notice>
      )}
      {children(data)}
    </>
  );
}

/** Whether the cluster says that there is no such thing. */
export function isNotFound(error: Error | null): boolean {
  return error instanceof Refused && error.status === 404;
}

function sentence(error: Error): string {
  const said = /[.!?]$/.test(error.message) ? error.message : `${error.message}.`;
  return isNotFound(error) ? `${said} It may have been removed from the history.` : said;
}
