import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { Refused, Unreachable } from "../api/client";
import { localTime } from "../format/times";
import { Notice } from "./Notice";

/**
 * What an answer shows, in each of its states: loading, refused, here, and refused now with what was here before.
 * That nobody answers is said once for the whole page (`shell/LiveState`).
 */
export function Answered<T>({
  query,
  children,
}: {
  query: UseQueryResult<T>;
  children: (data: T) => ReactNode;
}) {
  const { data, error, dataUpdatedAt } = query;
  if (data === undefined) {
    return error === null ? (
      <div className="skeleton" role="status" aria-label="Loading" />
    ) : (
      <Notice tone="bad">{sentence(error)}</Notice>
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
