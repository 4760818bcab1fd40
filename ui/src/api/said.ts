import { Refused, Unreachable } from "./client";

/** Why something was not done, in the words of who has refused. `unsure`: what to think where nobody has answered. */
export function said(error: unknown, unsure: string): string {
  if (error instanceof Refused) return error.message;
  if (error instanceof Unreachable) return `${error.message} ${unsure}`;
  throw error;
}
