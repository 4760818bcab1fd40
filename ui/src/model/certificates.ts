import type { AuthorityShown, CertificatesShown, CertificateShown } from "../api/schema";
import type { Tone } from "./states";

const DAY_MS = 86_400_000;
const SOON_MS = 7 * DAY_MS;

/** Of a certificate: how long it is valid; `former`: it is believed so long, by an authority that was replaced. */
export type Validity = "valid" | "ends soon" | "has ended" | "former";

export function validityOf({ until_ms: untilMs }: { readonly until_ms: number }, nowMs: number): Validity {
  if (untilMs <= nowMs) return "has ended";
  return untilMs - nowMs < SOON_MS ? "ends soon" : "valid";
}

/** Of what was issued: a process of a former authority has to be started again before that is believed no more. */
export function validityOfIssued(one: CertificateShown, shown: CertificatesShown): Validity {
  const validity = validityOf(one, shown.now_ms);
  const [current] = shown.authorities;
  if (validity === "has ended" || current === undefined || one.authority === current.fingerprint) {
    return validity;
  }
  return "former";
}

export function toneOfValidity(validity: Validity): Tone {
  switch (validity) {
    case "valid":
      return "good";
    case "ends soon":
    case "former":
      return "warn";
    case "has ended":
      return "bad";
  }
}

/** When the authority was replaced last; null: it is the first, as far as the former ones are still believed. */
export function rotatedMs([current, ...former]: readonly AuthorityShown[]): number | null {
  return current === undefined || former.length === 0 ? null : current.made_ms;
}

/** `8f3a 01bc …`, as people compare it by eye. */
export function inGroups(fingerprint: string): string {
  return fingerprint.match(/.{1,4}/g)?.join(" ") ?? fingerprint;
}

/** Processes whose name has the text, whatever its case. */
export function withName(processes: readonly CertificateShown[], text: string): readonly CertificateShown[] {
  const wanted = text.trim().toLowerCase();
  return processes.filter(({ name }) => name.toLowerCase().includes(wanted));
}

/** What the pages of certificates and hosts list, as their URL says it. */
export interface NamedView {
  readonly q: string;
}

export function namedViewOf(search: { readonly q?: unknown }): NamedView {
  return { q: typeof search.q === "string" || typeof search.q === "number" ? String(search.q) : "" };
}
