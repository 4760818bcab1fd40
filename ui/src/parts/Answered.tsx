import type { UseQueryResult } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";

import { Refused, Unreachable } from "../api/client";
import { localTime } from "../format/times";
import { Notice } from "./Notice";

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
  if (data === undefined) {
    // While a query without an answer is asked again it forgets why it was refused; the page does not.
    const why = error ?? (errorUpdateCount > 0 ? refused : null);
    return why === null ? (
      <div className="skeleton" role="status" aria-label="Loading" />
    ) : (
      <Notice tone="bad">{sentence(why)}</Notice>
    );
  }
  return (
    <>
      {error !== null && !(error instanceof Unreachable) && (
        <Notice tone="warn">
          {`${sentence(error)} What stands here is from ${localTime(dataUpdatedAt)}; it is asked for again.`}
        </Notice>
      )}
      {children(data)}
    </>
  );
}

function sentence(error: Error): string {
  if (error instanceof Refused && error.status === 404) {
    return `${error.message} It may have been removed from the history.`;
  }
  return error.message;
}
